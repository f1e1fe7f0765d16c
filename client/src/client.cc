#include "glyd/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/attached.h"
#include "client/src/connection.h"
#include "client/src/convert.h"

namespace glyd {
namespace {

using internal::Connection;
using internal::FromProto;

// Watching goes on in calls of this length: a connection that died silently is noticed, and the
// daemon's cap on deadlines is kept.
constexpr absl::Duration kWatchCall = absl::Minutes(5);
constexpr uint32_t kPageSize = 1000;

absl::Status Failed(const ModelInfo& m) {
  return absl::FailedPreconditionError(
      absl::StrCat("model \"", Printable(m.name), "\" failed to load: ", m.error));
}

}  // namespace

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

absl::StatusOr<Client> Client::Connect(ConnectOptions options) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                        Connection::Open(std::move(options)));
  return Client(std::move(connection));
}

const std::string& Client::server() const { return connection_->address().text; }

absl::StatusOr<ModelInfo> Client::Load(const LoadOptions& options) const {
  v1::LoadRequest request;
  request.set_name(options.name);
  request.set_path(options.path);
  request.set_device(options.device);
  request.set_pin(options.pin);
  request.set_verify(options.verify);
  request.set_transport(internal::ToProto(options.transport));
  request.set_layout(options.layout);
  v1::LoadReply reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->models(), &v1::Models::Stub::Load, request, &reply));
  return FromProto(reply.model());
}

absl::StatusOr<ModelInfo> Client::WaitUntilLoaded(
    absl::string_view name, const std::function<bool(const ModelInfo&)>& watch) const {
  for (;;) {
    ModelInfo last;
    bool seen = false, gone = false, unwanted = false;
    const absl::Status s =
        connection_->Follow<v1::Models::Stub, v1::WatchModelsRequest, v1::ModelEvent>(
            connection_->models(), &v1::Models::Stub::Watch, {}, kWatchCall,
            [&](v1::ModelEvent& event) {
              if (event.kind() == v1::ModelEvent::KIND_SYNCED) {
                gone = !seen;
                return !gone;
              }
              if (event.model().name() != name) return true;
              seen = true;
              gone = event.kind() == v1::ModelEvent::KIND_GONE;
              last = FromProto(event.model());
              unwanted = !gone && watch && !watch(last);
              return !gone && !unwanted && last.state == ModelState::kLoading;
            });
    if (unwanted) return absl::CancelledError("stopped by the caller");
    if (gone)
      return absl::NotFoundError(absl::StrCat("model \"", Printable(name), "\" is not there"));
    if (seen && last.state == ModelState::kFailed) return Failed(last);
    if (seen && last.state != ModelState::kLoading) return last;
    if (s.ok()) return absl::UnavailableError("the daemon ended the watch");
    if (!absl::IsDeadlineExceeded(s)) return s;
  }
}

absl::StatusOr<bool> Client::Unload(absl::string_view name, bool drain) const {
  v1::UnloadRequest request;
  request.set_name(std::string(name));
  request.set_drain(drain);
  v1::UnloadReply reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->models(), &v1::Models::Stub::Unload, request, &reply));
  return reply.draining();
}

absl::Status Client::Pin(absl::string_view name, bool pinned) const {
  v1::PinRequest request;
  request.set_name(std::string(name));
  request.set_pinned(pinned);
  v1::PinReply reply;
  return connection_->Call(connection_->models(), &v1::Models::Stub::Pin, request, &reply);
}

absl::StatusOr<std::vector<ModelInfo>> Client::List() const {
  v1::ListModelsReply reply;
  GLYD_RETURN_IF_ERROR(connection_->Call(connection_->models(), &v1::Models::Stub::List,
                                         v1::ListModelsRequest(), &reply));
  std::vector<ModelInfo> out;
  out.reserve(reply.models_size());
  for (const v1::Model& m : reply.models()) out.push_back(FromProto(m));
  return out;
}

absl::StatusOr<ModelInfo> Client::Get(absl::string_view name) const {
  v1::GetModelRequest request;
  request.set_name(std::string(name));
  v1::GetModelReply reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->models(), &v1::Models::Stub::Get, request, &reply));
  return FromProto(reply.model());
}

absl::StatusOr<ModelContents> Client::GetContents(absl::string_view name) const {
  ModelContents out;
  v1::GetModelRequest request;
  request.set_name(std::string(name));
  request.set_page_size(kPageSize);
  do {
    v1::GetModelReply reply;
    GLYD_RETURN_IF_ERROR(
        connection_->Call(connection_->models(), &v1::Models::Stub::Get, request, &reply));
    out.model = FromProto(reply.model());
    for (const v1::Pack& p : reply.packs()) out.packs.push_back(FromProto(p));
    for (const v1::Tensor& t : reply.tensors()) out.tensors.push_back(FromProto(t));
    if (!reply.next_page_token().empty() && reply.next_page_token() == request.page_token())
      return absl::InternalError(
          absl::StrCat("model \"", Printable(name), "\": the daemon repeats a page"));
    request.set_page_token(reply.next_page_token());
  } while (!request.page_token().empty());
  return out;
}

absl::StatusOr<std::vector<std::string>> Client::VerifyResident(
    absl::string_view name, const std::function<bool(uint64_t, uint64_t)>& watch) const {
  v1::VerifyResidentRequest request;
  request.set_name(std::string(name));
  std::vector<std::string> bad;
  // One call: unlike a watch it cannot be joined again, so its length is bounded by what hashing
  // can take.
  GLYD_RETURN_IF_ERROR(
      (connection_->Follow<v1::Models::Stub, v1::VerifyResidentRequest, v1::VerifyResidentEvent>(
          connection_->models(), &v1::Models::Stub::VerifyResident, request, absl::Hours(1),
          [&](v1::VerifyResidentEvent& event) {
            bad.insert(bad.end(), event.bad_tensors().begin(), event.bad_tensors().end());
            return !watch || watch(event.bytes_done(), event.bytes_total());
          })));
  return bad;
}

absl::StatusOr<Model> Client::Attach(absl::string_view name) const {
  GLYD_ASSIGN_OR_RETURN(auto attached, internal::AttachedModel::Attach(connection_, name));
  return Model(std::move(attached));
}

absl::StatusOr<Arena> Client::CreateArena(uint64_t bytes, absl::string_view device) const {
  GLYD_ASSIGN_OR_RETURN(auto arena, internal::MappedArena::Create(connection_, bytes, device));
  return Arena(std::move(arena));
}

absl::StatusOr<JobInfo> Client::Submit(const JobSpec& spec, absl::string_view request_id) const {
  v1::SubmitJobRequest request;
  request.set_request_id(std::string(request_id));
  *request.mutable_spec() = internal::ToProto(spec);
  v1::Job reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->jobs(), &v1::Jobs::Stub::Submit, request, &reply));
  return FromProto(reply);
}

absl::StatusOr<JobInfo> Client::GetJob(absl::string_view id) const {
  v1::GetJobRequest request;
  request.set_id(std::string(id));
  v1::Job reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->jobs(), &v1::Jobs::Stub::Get, request, &reply));
  return FromProto(reply);
}

absl::StatusOr<std::vector<JobInfo>> Client::ListJobs() const {
  v1::ListJobsRequest request;
  std::vector<JobInfo> out;
  do {
    v1::ListJobsReply reply;
    GLYD_RETURN_IF_ERROR(
        connection_->Call(connection_->jobs(), &v1::Jobs::Stub::List, request, &reply));
    for (const v1::Job& j : reply.jobs()) out.push_back(FromProto(j));
    request.set_page_token(reply.next_page_token());
  } while (!request.page_token().empty());
  return out;
}

absl::StatusOr<JobInfo> Client::WatchJob(absl::string_view id,
                                         const std::function<bool(const JobInfo&)>& watch) const {
  v1::WatchJobRequest request;
  request.set_id(std::string(id));
  for (;;) {
    JobInfo last;
    bool unwanted = false;
    const absl::Status s = connection_->Follow<v1::Jobs::Stub, v1::WatchJobRequest, v1::Job>(
        connection_->jobs(), &v1::Jobs::Stub::Watch, request, kWatchCall, [&](v1::Job& job) {
          last = FromProto(job);
          request.set_after_sequence(last.sequence);
          unwanted = watch && !watch(last);
          return !unwanted && !last.ended();
        });
    if (last.ended()) return last;
    if (unwanted) return absl::CancelledError("stopped by the caller");
    if (!s.ok() && !absl::IsDeadlineExceeded(s)) return s;
    if (s.ok()) return GetJob(id);  // ended between two changes
  }
}

absl::StatusOr<JobInfo> Client::CancelJob(absl::string_view id) const {
  v1::CancelJobRequest request;
  request.set_id(std::string(id));
  v1::Job reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->jobs(), &v1::Jobs::Stub::Cancel, request, &reply));
  return FromProto(reply);
}

absl::StatusOr<DaemonInfo> Client::Info() const {
  v1::InfoReply reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->server(), &v1::Server::Stub::Info, v1::InfoRequest(), &reply));
  return FromProto(reply);
}

absl::StatusOr<bool> Client::IsServing(absl::string_view service) const {
  grpc::health::v1::HealthCheckRequest request;
  const bool own = service.empty() || service == "liveness" || service == "readiness";
  request.set_service(absl::StrCat(own ? "" : "glyd.model.", service));
  grpc::health::v1::HealthCheckResponse reply;
  GLYD_RETURN_IF_ERROR(connection_->Call(connection_->health(),
                                         &grpc::health::v1::Health::Stub::Check, request, &reply));
  return reply.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

absl::StatusOr<uint64_t> Client::Drain(bool exit) const {
  v1::DrainRequest request;
  request.set_exit(exit);
  v1::DrainReply reply;
  GLYD_RETURN_IF_ERROR(
      connection_->Call(connection_->server(), &v1::Server::Stub::Drain, request, &reply));
  return reply.leases();
}

}  // namespace glyd
