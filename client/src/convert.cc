#include "client/src/convert.h"

#include "absl/time/time.h"

namespace glyd {

absl::string_view MemoryTransportName(MemoryTransport transport) {
  switch (transport) {
    case MemoryTransport::kFd:
      return "fd";
    case MemoryTransport::kCudaIpc:
      return "cuda-ipc";
    case MemoryTransport::kDefault:
      break;
  }
  return "default";
}

absl::string_view ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kDraining:
      return "DRAINING";
    case ModelState::kFailed:
      return "FAILED";
    case ModelState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

absl::string_view JobStateName(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "QUEUED";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
    case JobState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

namespace internal {
namespace {

MemoryTransport ToTransport(v1::Transport t) {
  switch (t) {
    case v1::TRANSPORT_FD:
      return MemoryTransport::kFd;
    case v1::TRANSPORT_CUDA_IPC:
      return MemoryTransport::kCudaIpc;
    default:
      return MemoryTransport::kDefault;
  }
}

ModelState ToState(v1::ModelState s) {
  switch (s) {
    case v1::MODEL_STATE_LOADING:
      return ModelState::kLoading;
    case v1::MODEL_STATE_READY:
      return ModelState::kReady;
    case v1::MODEL_STATE_DRAINING:
      return ModelState::kDraining;
    case v1::MODEL_STATE_FAILED:
      return ModelState::kFailed;
    default:
      return ModelState::kUnknown;
  }
}

JobState ToState(v1::JobState s) {
  switch (s) {
    case v1::JOB_STATE_QUEUED:
      return JobState::kQueued;
    case v1::JOB_STATE_RUNNING:
      return JobState::kRunning;
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_FAILED:
      return JobState::kFailed;
    case v1::JOB_STATE_CANCELLED:
      return JobState::kCancelled;
    default:
      return JobState::kUnknown;
  }
}

absl::Time ToTime(bool present, const google::protobuf::Timestamp& t) {
  if (!present) return absl::InfinitePast();
  return absl::UnixEpoch() + absl::Seconds(t.seconds()) + absl::Nanoseconds(t.nanos());
}

}  // namespace

v1::Transport ToProto(MemoryTransport transport) {
  switch (transport) {
    case MemoryTransport::kFd:
      return v1::TRANSPORT_FD;
    case MemoryTransport::kCudaIpc:
      return v1::TRANSPORT_CUDA_IPC;
    case MemoryTransport::kDefault:
      break;
  }
  return v1::TRANSPORT_UNSPECIFIED;
}

ModelInfo FromProto(const v1::Model& m) {
  ModelInfo out;
  out.name = m.name();
  out.state = ToState(m.state());
  out.error = m.error();
  out.path = m.path();
  out.device = m.device();
  out.transport = ToTransport(m.transport());
  out.format = m.format();
  out.layout = m.layout();
  out.packed_bytes = m.packed_bytes();
  out.allocation_bytes = m.allocation_bytes();
  out.bf16_bytes = m.bf16_bytes();
  out.packs = m.packs();
  out.tensors = m.tensors();
  out.pinned = m.pinned();
  out.leases = m.leases();
  for (const v1::Holder& h : m.holders())
    out.holders.push_back(
        {h.pid(), h.uid(), h.command(), ToTime(h.has_since(), h.since()), h.lease_id()});
  out.loaded_at = ToTime(m.has_loaded_at(), m.loaded_at());
  out.last_used_at = ToTime(m.has_last_used_at(), m.last_used_at());
  out.load_bytes_done = m.load_bytes_done();
  out.load_bytes_total = m.load_bytes_total();
  out.source_repo = m.source_repo();
  out.source_revision = m.source_revision();
  out.manifest_sha256 = m.manifest_sha256();
  out.allocation_id = m.allocation_id();
  out.memory_inode = m.memory_inode();
  return out;
}

PackInfo FromProto(const v1::Pack& p) {
  PackInfo out;
  out.name = p.name();
  out.layout = p.layout();
  out.rows = p.rows();
  out.cols = p.cols();
  out.bytes = p.data().bytes() + p.side().bytes() + p.base().bytes();
  out.experts = p.experts();
  for (const v1::Member& m : p.members()) out.tensors.push_back(m.name());
  return out;
}

TensorInfo FromProto(const v1::Tensor& t) {
  return {t.name(), t.dtype(), {t.shape().begin(), t.shape().end()}, t.buffer().bytes()};
}

JobInfo FromProto(const v1::Job& j) {
  JobInfo out;
  out.id = j.id();
  out.request_id = j.request_id();
  switch (j.spec().kind_case()) {
    case v1::JobSpec::kVerify:
      out.spec = VerifyJob{j.spec().verify().path(), j.spec().verify().quick()};
      break;
    case v1::JobSpec::kLoad: {
      const v1::LoadSpec& s = j.spec().load();
      out.spec = LoadJob{s.name(), s.path(), s.device(), s.pin(), s.verify()};
      break;
    }
    default: {
      const v1::PackSpec& s = j.spec().pack();
      out.spec = PackJob{s.source(), s.output(), s.layout(), s.no_merge(),
                         s.any(),    s.force(),  s.threads()};
    }
  }
  out.state = ToState(j.state());
  out.phase = j.progress().phase();
  out.item = j.progress().item();
  out.bytes_done = j.progress().bytes_done();
  out.bytes_total = j.progress().bytes_total();
  out.bytes_per_second = j.progress().bytes_per_second();
  out.error_reason = j.error_reason();
  out.error = j.error();
  out.result_json = j.result_json();
  out.sequence = j.sequence();
  out.uid = j.uid();
  out.created_at = ToTime(j.has_created_at(), j.created_at());
  out.started_at = ToTime(j.has_started_at(), j.started_at());
  out.ended_at = ToTime(j.has_ended_at(), j.ended_at());
  out.notes.assign(j.notes().begin(), j.notes().end());
  return out;
}

DaemonInfo FromProto(const v1::InfoReply& i) {
  DaemonInfo out;
  out.version = i.version();
  out.pid = i.pid();
  out.generation = i.generation();
  out.started_at = ToTime(i.has_started_at(), i.started_at());
  for (const v1::DeviceState& d : i.devices()) {
    DeviceStatus& s = out.devices.emplace_back();
    s.name = d.name();
    s.kind = d.kind();
    s.model = d.model();
    s.uuid = d.uuid();
    s.total_bytes = d.total_bytes();
    s.budget_bytes = d.budget_bytes();
    s.used_bytes = d.used_bytes();
    s.transport = ToTransport(d.transport());
    s.worker_pid = d.worker_pid();
    s.worker_restarts = d.worker_restarts();
    s.error = d.error();
    s.linear_targets.assign(d.linear_targets().begin(), d.linear_targets().end());
  }
  for (const v1::Root& r : i.roots()) out.roots.push_back({r.name(), r.directory(), r.writable()});
  out.sessions = i.sessions();
  out.leases = i.leases();
  out.draining = i.draining();
  out.linear_threads = i.linear_threads();
  return out;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec out;
  if (const auto* p = std::get_if<PackJob>(&spec)) {
    v1::PackSpec& s = *out.mutable_pack();
    s.set_source(p->source);
    s.set_output(p->output);
    s.set_layout(p->layout);
    s.set_no_merge(p->no_merge);
    s.set_any(p->any);
    s.set_force(p->force);
    s.set_threads(p->threads);
  } else if (const auto* v = std::get_if<VerifyJob>(&spec)) {
    out.mutable_verify()->set_path(v->path);
    out.mutable_verify()->set_quick(v->quick);
  } else if (const auto* l = std::get_if<LoadJob>(&spec)) {
    v1::LoadSpec& s = *out.mutable_load();
    s.set_name(l->name);
    s.set_path(l->path);
    s.set_device(l->device);
    s.set_pin(l->pin);
    s.set_verify(l->verify);
  }
  return out;
}

}  // namespace internal
}  // namespace glyd
