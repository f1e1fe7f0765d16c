#include "server/core/models.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/core/log.h"

namespace glyd {
namespace {

using glyd::v1::Model;
using glyd::v1::ModelEvent;
using worker::v1::FromWorker;
using worker::v1::ToWorker;

constexpr uint64_t kMaxTableBytes = uint64_t{1} << 30;

google::protobuf::Timestamp ToProto(absl::Time t) {
  google::protobuf::Timestamp out;
  const int64_t ns = absl::ToUnixNanos(t);
  out.set_seconds(ns / 1000000000);
  out.set_nanos(static_cast<int32_t>(ns % 1000000000));
  return out;
}

absl::Status CheckName(const std::string& name) {
  if (IsValidName(name)) return absl::OkStatus();
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "name \"", Printable(name, 150), "\" (", name.size(),
          " bytes): 1 to 128 of A-Z a-z 0-9 . _ - are allowed, not starting with a dot")),
      "BAD_NAME");
}

absl::Status NoModel(const std::string& name) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("no model is called \"", Printable(name), "\"")),
      "NO_MODEL");
}

absl::Status Stopping() {
  return WithReason(absl::UnavailableError("the daemon is stopping"), "STOPPING");
}

absl::StatusOr<glyd::v1::ModelTable> ReadTable(const Allocation& a) {
  if (a.table_bytes > kMaxTableBytes)
    return absl::ResourceExhaustedError(absl::StrCat("a table of ", a.table_bytes, " bytes"));
  std::string bytes(a.table_bytes, '\0');
  GLYD_RETURN_IF_ERROR(
      PreadFull(a.table->get(), bytes.data(), bytes.size(), 0, "the model's table"));
  glyd::v1::ModelTable table;
  if (!table.ParseFromString(bytes)) return absl::InternalError("the model's table does not parse");
  return table;
}

std::string HolderText(const glyd::v1::Holder& h) {
  return absl::StrCat("pid ", h.pid(), " (", Printable(h.command()), ", uid ", h.uid(), ")");
}

}  // namespace

Models::Models(std::vector<ServedDevice*> devices, const Roots* roots, uint64_t generation)
    : devices_(std::move(devices)), roots_(roots), generation_(generation) {}

Models::~Models() {
  Stop();
  std::map<std::string, Entry> entries;
  std::map<std::string, Lease> leases;
  {
    absl::MutexLock lock(&mu_);
    entries.swap(entries_);
    leases.swap(leases_);
  }
  leases.clear();
  entries.clear();
  freer_.Stop();
  teller_.Stop();
}

ServedDevice* Models::PickDevice(const std::string& name) const {
  for (ServedDevice* d : devices_)
    if (name.empty() || name == "auto" || d->slot->name() == name) return d;
  return nullptr;
}

absl::StatusOr<Model> Models::Load(const glyd::v1::LoadRequest& r, Loaded loaded) {
  GLYD_RETURN_IF_ERROR(CheckName(r.name()));
  GLYD_ASSIGN_OR_RETURN(const RootedPath path, roots_->Resolve(r.path(), /*to_write=*/false));
  ServedDevice* device = PickDevice(r.device());
  if (device == nullptr) {
    std::vector<std::string> names;
    for (const ServedDevice* d : devices_) names.push_back(d->slot->name());
    return WithReason(
        absl::NotFoundError(absl::StrCat("no device \"", Printable(r.device()), "\"; there is ",
                                         absl::StrJoin(names, ", "))),
        "NO_DEVICE");
  }
  if (r.transport() == glyd::v1::TRANSPORT_CUDA_IPC)
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("device ", device->slot->name(),
                                                   " shares memory by file descriptor alone")),
        "TRANSPORT");
  if (!r.layout().empty())
    return WithReason(
        absl::UnimplementedError("a load in another layout than the save's is not there yet"),
        "UNIMPLEMENTED");
  const auto load = std::make_shared<LoadCall>();
  Model out;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return Stopping();
    const std::string shown_path = absl::StrCat(path.root, "/", path.relative);
    const auto it = entries_.find(r.name());
    if (it != entries_.end() && it->second.model.state() != glyd::v1::MODEL_STATE_FAILED) {
      Entry& there = it->second;
      if (there.model.path() != shown_path || there.model.state() == glyd::v1::MODEL_STATE_DRAINING)
        return WithReason(
            absl::AlreadyExistsError(absl::StrCat(
                "the name \"", r.name(), "\" is taken by ", there.model.path(),
                there.model.state() == glyd::v1::MODEL_STATE_DRAINING ? " (draining)" : "",
                ": unload it or choose another name")),
            "NAME_TAKEN");
      there.model.set_pinned(there.model.pinned() || r.pin());
      if (loaded && there.model.state() == glyd::v1::MODEL_STATE_LOADING)
        there.loaded.push_back(std::move(loaded));
      else if (loaded)
        teller_.Post([loaded, m = Snapshot(there)] { loaded(m); });
      return Snapshot(there);
    }
    Entry& e = entries_[r.name()] = Entry();
    e.serial = load->serial = next_id_++;
    e.model.set_name(r.name());
    e.model.set_state(glyd::v1::MODEL_STATE_LOADING);
    e.model.set_path(shown_path);
    e.model.set_device(device->slot->name());
    e.model.set_transport(glyd::v1::TRANSPORT_FD);
    e.model.set_pinned(r.pin());
    e.last_used = absl::Now();
    e.loading = load->ongoing;
    if (loaded) e.loaded.push_back(std::move(loaded));
    load->name = r.name();
    load->allocation_id = next_id_++;
    load->device = device;
    load->verify = r.verify();
    Tell(e, ModelEvent::KIND_CHANGED);
    out = Snapshot(e);
  }
  ToWorker m;
  m.mutable_load()->set_model_id(load->allocation_id);
  m.mutable_load()->set_root_name(path.root);
  m.mutable_load()->set_relative(path.relative);
  m.mutable_load()->set_verify(r.verify());
  m.mutable_load()->set_label(r.name());
  device->slot->Call(
      std::move(m), {path.fd},
      [this, load](const FromWorker& answer, std::vector<UniqueFd> fds) {
        OnLoad(load, answer, std::move(fds));
      },
      load->ongoing);
  return out;
}

void Models::OnLoad(const std::shared_ptr<LoadCall>& load, const FromWorker& m,
                    std::vector<UniqueFd> fds) {
  switch (m.kind_case()) {
    case FromWorker::kReserve: {
      ToWorker answer;
      answer.mutable_reserved()->set_answer(Admit(*load, m.reserve())
                                                ? worker::v1::Reserved::ANSWER_GO
                                                : worker::v1::Reserved::ANSWER_STOP);
      load->ongoing->Send(std::move(answer));
      return;
    }
    case FromWorker::kProgress: {
      absl::MutexLock lock(&mu_);
      Entry* e = Find(*load);
      if (e == nullptr) return;
      e->model.set_load_bytes_done(m.progress().bytes_done());
      e->model.set_load_bytes_total(m.progress().bytes_total());
      Tell(*e, ModelEvent::KIND_CHANGED);
      return;
    }
    case FromWorker::kDone:
      return Finish(*load, m.done(), std::move(fds));
    case FromWorker::kError: {
      const auto code = static_cast<absl::StatusCode>(m.error().code());
      return Fail(*load, WithReason(absl::Status(code, m.error().message()), m.error().reason()));
    }
    default:
      return;
  }
}

// true: the worker may allocate. false: the load is settled here, for better or worse.
bool Models::Admit(LoadCall& load, const worker::v1::Reserve& want) {
  Garbage garbage;  // freed after the lock
  absl::MutexLock lock(&mu_);
  Entry* e = Find(load);
  if (e == nullptr || stopped_) return false;
  load.digest = want.manifest_sha256();
  for (auto& [id, weak] : allocations_) {
    const auto a = weak.lock();
    if (a == nullptr || a->device != load.device ||
        a->facts.manifest_sha256() != absl::BytesToHexString(load.digest) ||
        (load.verify && !a->verified))
      continue;
    load.settled = true;
    e->allocation = a;
    Settle(*e, glyd::v1::MODEL_STATE_READY);
    Log(LogLevel::kInfo, "model ready", {{"name", load.name}, {"shares", a->id}});
    return false;
  }
  if (!MakeRoom(load, want.allocation_bytes(), &garbage)) return false;
  load.taken = want.allocation_bytes();
  e->model.set_load_bytes_total(want.packed_bytes());
  return true;
}

bool Models::MakeRoom(LoadCall& load, uint64_t bytes, Garbage* garbage) {
  MemoryBudget& budget = load.device->budget;
  if (budget.Take(bytes)) return true;
  // Blocks that go when their names do: not pinned, not leased, by whatever name.
  std::map<uint64_t, std::pair<absl::Time, std::vector<std::string>>> idle;
  std::vector<uint64_t> kept;
  for (const auto& [name, e] : entries_) {
    if (e.allocation == nullptr || e.allocation->device != load.device) continue;
    const uint64_t id = e.allocation->id;
    if (e.model.pinned() || !e.leases.empty()) kept.push_back(id);
    auto& [used, names] = idle[id];
    used = std::max(names.empty() ? absl::InfinitePast() : used, e.last_used);
    names.push_back(name);
  }
  for (const uint64_t id : kept) idle.erase(id);
  uint64_t evictable = 0;
  std::vector<std::pair<absl::Time, uint64_t>> order;
  for (const auto& [id, of] : idle) {
    // A call in flight holds its block for a moment longer than its name.
    evictable += entries_[of.second.front()].allocation->bytes;
    order.emplace_back(of.first, id);
  }
  const uint64_t free = budget.free();
  if (bytes > free + evictable) {
    Entry* e = Find(load);
    e->model.set_error(
        absl::StrFormat("does not fit on %s: %d bytes asked, %d free, %d evictable, limit %d",
                        load.device->slot->name(), bytes, free, evictable, budget.limit()));
    load.settled = true;
    Settle(*e, glyd::v1::MODEL_STATE_FAILED);
    return false;
  }
  std::sort(order.begin(), order.end());
  for (const auto& [used, id] : order) {
    for (const std::string& name : idle[id].second) {
      Log(LogLevel::kInfo, "model evicted", {{"name", name}, {"for", load.name}});
      Erase(name, garbage);
    }
    // The last reference: the block's bytes come back now, its pages a little later.
    garbage->clear();
    if (budget.Take(bytes)) return true;
  }
  Entry* e = Find(load);
  e->model.set_error(
      "does not fit yet: memory of evicted models is still in use by calls in flight; try again");
  load.settled = true;
  Settle(*e, glyd::v1::MODEL_STATE_FAILED);
  return false;
}

std::shared_ptr<Allocation> Models::NewAllocation(const LoadCall& load) {
  auto a = std::make_shared<Allocation>();
  a->id = load.allocation_id;
  a->device = load.device;
  a->bytes = load.taken;
  a->verified = load.verify;
  a->on_free = [this](Allocation* gone) {
    gone->device->budget.Give(gone->bytes);
    // Unmapping and closing many gigabytes takes its time.
    freer_.Post([slot = gone->device->slot.get(), id = gone->id, memory = std::move(gone->memory),
                 table = std::move(gone->table)]() mutable {
      ToWorker m;
      m.mutable_free_model()->set_model_id(id);
      slot->Tell(std::move(m));
      memory.reset();
      table.reset();
    });
  };
  return a;
}

void Models::Finish(LoadCall& load, const worker::v1::Done& done, std::vector<UniqueFd> fds) {
  if (fds.size() != 2) return Fail(load, absl::InternalError("the worker sent no memory"));
  std::shared_ptr<Allocation> a = NewAllocation(load);
  load.taken = 0;
  a->packed_bytes = done.packed_bytes();
  a->table_bytes = done.table_bytes();
  a->memory = std::make_shared<const UniqueFd>(std::move(fds[0]));
  a->table = std::make_shared<const UniqueFd>(std::move(fds[1]));
  struct stat st;
  if (::fstat(a->memory->get(), &st) == 0) a->inode = st.st_ino;
  const auto table = ReadTable(*a);
  if (!table.ok()) return Fail(load, table.status());
  Model& f = a->facts;
  f.set_format(table->format());
  f.set_layout(table->layout());
  f.set_source_repo(table->source_repo());
  f.set_source_revision(table->source_revision());
  f.set_manifest_sha256(absl::BytesToHexString(load.digest));
  f.set_packed_bytes(a->packed_bytes);
  f.set_allocation_bytes(a->bytes);
  f.set_bf16_bytes(table->bf16_bytes());
  f.set_packs(table->packs_size());
  f.set_tensors(done.tensors());
  f.set_allocation_id(a->id);
  f.set_memory_inode(a->inode);
  absl::MutexLock lock(&mu_);
  Entry* e = Find(load);
  if (e == nullptr) return;  // unloaded meanwhile: the block goes with `a`
  load.settled = true;
  allocations_[a->id] = a;
  e->allocation = std::move(a);
  e->model.set_load_bytes_done(e->model.load_bytes_total());
  Settle(*e, glyd::v1::MODEL_STATE_READY);
  Log(LogLevel::kInfo, "model ready",
      {{"name", load.name}, {"bytes", f.allocation_bytes()}, {"packs", f.packs()}});
}

void Models::Fail(LoadCall& load, const absl::Status& why) {
  if (load.taken > 0) load.device->budget.Give(load.taken);
  load.taken = 0;
  absl::MutexLock lock(&mu_);
  Entry* e = Find(load);
  if (e == nullptr || load.settled) return;
  load.settled = true;
  e->model.set_error(std::string(why.message()));
  Settle(*e, glyd::v1::MODEL_STATE_FAILED);
  Log(LogLevel::kWarning, "load failed", {{"name", load.name}, {"error", why.message()}});
}

Models::Entry* Models::Find(const LoadCall& load) {
  const auto it = entries_.find(load.name);
  return it == entries_.end() || it->second.serial != load.serial ? nullptr : &it->second;
}

void Models::Settle(Entry& e, glyd::v1::ModelState state) {
  e.model.set_state(state);
  e.loading.reset();
  e.last_used = absl::Now();
  if (e.allocation != nullptr) {
    e.model.MergeFrom(e.allocation->facts);
    *e.model.mutable_loaded_at() = ToProto(e.last_used);
  }
  Tell(e, ModelEvent::KIND_CHANGED);
  for (Loaded& loaded : e.loaded)
    teller_.Post([loaded = std::move(loaded), m = Snapshot(e)] { loaded(m); });
  e.loaded.clear();
}

Model Models::Snapshot(const Entry& e) const {
  Model m = e.model;
  *m.mutable_last_used_at() = ToProto(e.last_used);
  for (const auto& [id, lease] : e.leases) *m.add_holders() = lease->holder;
  return m;
}

void Models::Tell(const Entry& e, ModelEvent::Kind kind) {
  ModelEvent event;
  event.set_kind(kind);
  *event.mutable_model() = Snapshot(e);
  // A change not yet sent may be replaced by a later one of the same model.
  std::string key =
      kind == ModelEvent::KIND_CHANGED ? absl::StrCat(e.model.name(), "/", e.serial) : "";
  teller_.Post(
      [this, event = std::move(event), key = std::move(key)] { watchers_.Push(event, key); });
}

void Models::Erase(const std::string& name, Garbage* garbage) {
  const auto it = entries_.find(name);
  Tell(it->second, ModelEvent::KIND_GONE);
  if (it->second.loading != nullptr) {
    it->second.model.set_error("unloaded while loading");
    it->second.model.set_state(glyd::v1::MODEL_STATE_FAILED);
    for (Loaded& l : it->second.loaded)
      teller_.Post([l = std::move(l), m = it->second.model] { l(m); });
  }
  garbage->push_back(std::move(it->second.allocation));
  entries_.erase(it);
  std::erase_if(allocations_, [](const auto& a) { return a.second.expired(); });
}

absl::StatusOr<bool> Models::Unload(const std::string& name, bool drain) {
  Garbage garbage;
  std::shared_ptr<DeviceSlot::Ongoing> loading;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) return NoModel(name);
    Entry& e = it->second;
    if (!e.leases.empty()) {
      std::vector<std::string> holders;
      for (const auto& [id, lease] : e.leases) {
        if (holders.size() == 10) {
          holders.push_back("...");
          break;
        }
        holders.push_back(HolderText(lease->holder));
      }
      if (!drain)
        return WithReason(absl::FailedPreconditionError(absl::StrCat(
                              "\"", name, "\" is leased ", e.leases.size(), " times, by ",
                              absl::StrJoin(holders, ", "), ": end them, or unload with drain")),
                          "IN_USE");
      e.model.set_state(glyd::v1::MODEL_STATE_DRAINING);
      Tell(e, ModelEvent::KIND_CHANGED);
      return true;
    }
    loading = e.loading;
    Erase(name, &garbage);
    Log(LogLevel::kInfo, "model unloaded", {{"name", name}});
  }
  if (loading != nullptr) loading->Cancel();
  return false;
}

absl::Status Models::Pin(const std::string& name, bool pinned) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  it->second.model.set_pinned(pinned);
  Tell(it->second, ModelEvent::KIND_CHANGED);
  return absl::OkStatus();
}

std::vector<Model> Models::List() const {
  std::vector<Model> out;
  absl::MutexLock lock(&mu_);
  for (const auto& [name, e] : entries_) out.push_back(Snapshot(e));
  return out;
}

absl::StatusOr<Model> Models::Get(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  return Snapshot(it->second);
}

absl::StatusOr<const Models::Entry*> Models::FindReady(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  const Entry& e = it->second;
  if (e.model.state() == glyd::v1::MODEL_STATE_LOADING)
    return WithReason(absl::UnavailableError(absl::StrCat(
                          "\"", name, "\" is still loading: ", e.model.load_bytes_done(), " of ",
                          e.model.load_bytes_total(), " bytes")),
                      "LOADING");
  if (e.model.state() == glyd::v1::MODEL_STATE_FAILED)
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("\"", name, "\" did not load: ", e.model.error())),
                      "LOAD_FAILED");
  return &e;
}

absl::StatusOr<std::shared_ptr<Allocation>> Models::Resident(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  GLYD_ASSIGN_OR_RETURN(const Entry* e, FindReady(name));
  return e->allocation;
}

absl::StatusOr<glyd::v1::ModelTable> Models::Table(const std::string& name) const {
  GLYD_ASSIGN_OR_RETURN(const std::shared_ptr<Allocation> a, Resident(name));
  return ReadTable(*a);
}

absl::StatusOr<Models::Grant> Models::Attach(const Session& session, const std::string& name) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return Stopping();
  GLYD_ASSIGN_OR_RETURN(const Entry* found, FindReady(name));
  Entry& e = entries_[name];
  if (found->model.state() == glyd::v1::MODEL_STATE_DRAINING)
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("\"", name, "\" is draining: no new lease is given")),
                      "DRAINING");
  // 64 random bits: a lease's id says nothing of others'.
  uint64_t random;
  std::memcpy(&random, RandomBytes(sizeof random).data(), sizeof random);
  const std::string id = absl::StrFormat("%016x-%d-%016x", generation_, next_id_++, random);
  Lease& lease = leases_[id];
  lease.session_id = session.id;
  lease.model = name;
  lease.allocation = e.allocation;
  lease.holder.set_pid(session.pid);
  lease.holder.set_uid(session.uid);
  lease.holder.set_command(Printable(session.command));
  lease.holder.set_lease_id(id);
  e.last_used = absl::Now();
  *lease.holder.mutable_since() = ToProto(e.last_used);
  e.leases[id] = &lease;
  Tell(e, ModelEvent::KIND_CHANGED);
  return Grant{id, Snapshot(e)};
}

absl::StatusOr<std::shared_ptr<Allocation>> Models::Leased(uint64_t session_id,
                                                           const std::string& lease_id) {
  absl::MutexLock lock(&mu_);
  const auto it = leases_.find(lease_id);
  if (it != leases_.end() && it->second.session_id == session_id) {
    const auto e = entries_.find(it->second.model);
    if (e != entries_.end()) e->second.last_used = absl::Now();
    return it->second.allocation;
  }
  if (lease_id.size() > 17 && lease_id[16] == '-' &&
      lease_id.compare(0, 16, absl::StrFormat("%016x", generation_)) != 0)
    return WithReason(
        absl::FailedPreconditionError(
            "the lease is of another generation: the daemon was started again since; attach again"),
        "OTHER_GENERATION");
  return WithReason(absl::NotFoundError("no such lease in this session"), "NO_LEASE");
}

void Models::EndLease(const std::string& lease_id, Garbage* garbage) {
  const auto it = leases_.find(lease_id);
  garbage->push_back(std::move(it->second.allocation));
  const auto e = entries_.find(it->second.model);
  if (e != entries_.end() && e->second.leases.erase(lease_id) == 1) {
    e->second.last_used = absl::Now();
    if (e->second.leases.empty() && e->second.model.state() == glyd::v1::MODEL_STATE_DRAINING)
      Erase(e->first, garbage);
    else
      Tell(e->second, ModelEvent::KIND_CHANGED);
  }
  leases_.erase(it);
}

absl::Status Models::Release(uint64_t session_id, const std::string& lease_id) {
  GLYD_RETURN_IF_ERROR(Leased(session_id, lease_id).status());
  Garbage garbage;
  absl::MutexLock lock(&mu_);
  // Two releases at once: the second finds none.
  if (leases_.count(lease_id) == 0)
    return WithReason(absl::NotFoundError("no such lease in this session"), "NO_LEASE");
  EndLease(lease_id, &garbage);
  return absl::OkStatus();
}

void Models::EndSession(uint64_t session_id) {
  Garbage garbage;
  absl::MutexLock lock(&mu_);
  std::vector<std::string> ids;
  for (const auto& [id, lease] : leases_)
    if (lease.session_id == session_id) ids.push_back(id);
  for (const std::string& id : ids) EndLease(id, &garbage);
}

void Models::Watch(const std::shared_ptr<Sink<ModelEvent>>& sink) {
  absl::MutexLock lock(&mu_);
  std::vector<Model> present;
  for (const auto& [name, e] : entries_) present.push_back(Snapshot(e));
  // On the teller's thread, so that what is there comes before every later change.
  teller_.Post([this, sink, present = std::move(present)] {
    ModelEvent event;
    event.set_kind(ModelEvent::KIND_PRESENT);
    for (const Model& m : present) {
      *event.mutable_model() = m;
      sink->Push(event, "");
    }
    event.Clear();
    event.set_kind(ModelEvent::KIND_SYNCED);
    sink->Push(event, "");
    watchers_.Add(sink);
  });
}

void Models::Stop() {
  absl::MutexLock lock(&mu_);
  if (stopped_) return;
  stopped_ = true;
  teller_.Post([this] { watchers_.End(Stopping()); });
}

std::vector<DeviceSlot::Told> Models::Restore(const ServedDevice* device) const {
  std::vector<DeviceSlot::Told> out;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, weak] : allocations_) {
    const auto a = weak.lock();
    if (a == nullptr || a->device != device) continue;
    ToWorker m;
    m.mutable_import_model()->set_model_id(id);
    out.push_back({std::move(m), {a->memory, a->table}});
  }
  return out;
}

uint64_t Models::lease_count() const {
  absl::MutexLock lock(&mu_);
  return leases_.size();
}

}  // namespace glyd
