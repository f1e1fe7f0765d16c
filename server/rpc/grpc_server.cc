#include "server/rpc/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include <chrono>
#include <utility>

#include "server/rpc/call_log.h"

namespace glyd {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    Daemon* daemon, std::shared_ptr<HealthState> health, std::shared_ptr<Metrics> metrics,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  // Health is our own service: gRPC's says SERVING whatever the daemon's state.
  grpc::EnableDefaultHealthCheckService(false);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto out = std::make_unique<GrpcServer>();
  out->metrics_ = metrics;
  out->services_.push_back(NewModelsService(daemon));
  out->services_.push_back(NewJobsService(daemon));
  out->services_.push_back(NewLinearService(daemon));
  out->services_.push_back(NewServerService(daemon, health));
  out->services_.push_back(NewHealthService(health));
  grpc::ServerBuilder builder;
  out->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  builder.SetMaxReceiveMessageSize(4 << 20);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(metrics->NewInterceptor());
  interceptors.push_back(NewCallLog());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (const auto& s : out->services_) builder.RegisterService(s.get());
  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr) return absl::InternalError("gRPC did not start");
  return out;
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) Shutdown(absl::ZeroDuration());
}

void GrpcServer::Take(UniqueFd connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters p;
  p.listener_fd = -1;
  p.fd = connection.release();
  acceptor_->HandleNewConnection(&p);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  // gRPC's own grace also waits for connections that only idle, whose clients look at them every
  // few seconds: calls are waited for here, and what is left then is cancelled at once.
  const absl::Time end = absl::Now() + grace;
  while (metrics_->in_flight() > 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace glyd
