#include "tests/e2e/calls.h"

#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/socket.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/e2e/daemon.h"

namespace glyd {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& server) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), args);
}

std::unique_ptr<grpc::ClientContext> Deadline(int seconds, const std::string& token) {
  auto c = std::make_unique<grpc::ClientContext>();
  c->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
  c->set_wait_for_ready(true);
  if (!token.empty()) c->AddMetadata("glyd-session", token);
  return c;
}

std::string ReasonIn(const grpc::Status& s) {
  google::rpc::Status details;
  details.ParseFromString(s.error_details());
  google::rpc::ErrorInfo info;
  for (const auto& d : details.details())
    if (d.Is<google::rpc::ErrorInfo>()) d.UnpackTo(&info);
  return info.reason();
}

absl::StatusOr<v1::BrokerReply> AskBroker(int socket, const v1::BrokerRequest& request) {
  if (absl::Status s = SendFrame(socket, request.SerializeAsString()); !s.ok()) return s;
  auto frame = RecvFrame(socket, 1 << 20);
  if (!frame.ok()) return frame.status();
  v1::BrokerReply reply;
  if (!reply.ParseFromString(frame->data)) return absl::InternalError("does not parse");
  return reply;
}

absl::StatusOr<v1::BrokerReply> Hello(int socket, uint32_t protocol) {
  v1::BrokerRequest r;
  r.mutable_hello()->set_protocol(protocol);
  return AskBroker(socket, r);
}

RawClient::RawClient(const std::string& directory) {
  const auto channel = ChannelTo("unix:" + directory + "/glydd.sock");
  models = v1::Models::NewStub(channel);
  jobs = v1::Jobs::NewStub(channel);
  linear = v1::Linear::NewStub(channel);
  server = v1::Server::NewStub(channel);
  health = grpc::health::v1::Health::NewStub(channel);
  auto s = ConnectUnix(directory + "/broker.sock");
  if (!s.ok()) return;
  broker_ = *std::move(s);
  if (const auto welcome = Hello(broker_.get()); welcome.ok())
    token_ = absl::BytesToHexString(welcome->welcome().token());
}

grpc::Status RawClient::Attach(const std::string& model, v1::AttachReply* reply) {
  v1::AttachRequest r;
  r.set_name(model);
  return models->Attach(Deadline(10, token_).get(), r, reply);
}

grpc::Status RawClient::Release(const std::string& lease) {
  v1::ReleaseRequest r;
  r.set_lease_id(lease);
  v1::ReleaseReply reply;
  return models->Release(Deadline(10, token_).get(), r, &reply);
}

grpc::Status RawClient::Load(const std::string& name, const std::string& path, bool verify) {
  v1::LoadRequest r;
  r.set_name(name);
  r.set_path(path);
  r.set_verify(verify);
  v1::LoadReply reply;
  return models->Load(Deadline().get(), r, &reply);
}

v1::Model RawClient::LoadAndWait(const std::string& name, const std::string& path, bool verify) {
  v1::Model m;
  if (const grpc::Status s = Load(name, path, verify); !s.ok()) {
    m.set_error(s.error_message());
    return m;
  }
  Eventually(
      [&] {
        m = Get(name);
        return m.state() != v1::MODEL_STATE_LOADING;
      },
      absl::Seconds(60));
  return m;
}

grpc::Status RawClient::Unload(const std::string& name, bool drain) {
  v1::UnloadRequest r;
  r.set_name(name);
  r.set_drain(drain);
  v1::UnloadReply reply;
  return models->Unload(Deadline().get(), r, &reply);
}

v1::Model RawClient::Get(const std::string& name) {
  v1::GetModelRequest r;
  r.set_name(name);
  v1::GetModelReply reply;
  const grpc::Status s = models->Get(Deadline().get(), r, &reply);
  return s.ok() ? reply.model() : v1::Model();
}

v1::InfoReply RawClient::Info(int seconds) {
  v1::InfoReply reply;
  if (!server->Info(Deadline(seconds).get(), {}, &reply).ok()) reply.Clear();
  return reply;
}

std::vector<v1::Model> RawClient::List() {
  v1::ListModelsReply reply;
  if (!models->List(Deadline().get(), {}, &reply).ok()) return {};
  return {reply.models().begin(), reply.models().end()};
}

grpc::Status RawClient::Linear(const v1::LinearRequest& request, v1::LinearReply* reply,
                               int seconds) {
  return linear->Run(Deadline(seconds, token_).get(), request, reply);
}

v1::Job RawClient::WaitForJob(const std::string& id) {
  v1::GetJobRequest r;
  r.set_id(id);
  v1::Job job;
  Eventually(
      [&] {
        return jobs->Get(Deadline().get(), r, &job).ok() && job.state() >= v1::JOB_STATE_SUCCEEDED;
      },
      absl::Seconds(60));
  return job;
}

}  // namespace glyd
