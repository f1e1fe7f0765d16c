#ifndef GLYD_SERVER_RPC_GRPC_SERVER_H_
#define GLYD_SERVER_RPC_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "server/rpc/metrics.h"
#include "server/rpc/services.h"

namespace glyd {

// A gRPC server of all services that listens nowhere: connections are handed to it.
class GrpcServer {
 public:
  // `daemon` outlives it.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      Daemon* daemon, std::shared_ptr<HealthState> health, std::shared_ptr<Metrics> metrics,
      std::shared_ptr<grpc::ServerCredentials> credentials);
  ~GrpcServer();

  // Takes an accepted socket over. Thread-safe.
  void Take(UniqueFd connection);
  // Ends it: calls in flight have `grace`, then they are cancelled. Once.
  void Shutdown(absl::Duration grace);

 private:
  std::shared_ptr<Metrics> metrics_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_GRPC_SERVER_H_
