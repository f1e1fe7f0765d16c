#ifndef GLYD_SERVER_RPC_METRICS_H_
#define GLYD_SERVER_RPC_METRICS_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/services.h"

namespace glyd {

// What the daemon tells Prometheus (docs/operating.md lists the names). Thread-safe.
class Metrics {
 public:
  virtual ~Metrics() = default;
  // Counts and times every call of the server that is given it.
  virtual std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  NewInterceptor() = 0;
  // Calls that have begun and not ended, of every server that was given an interceptor.
  virtual int64_t in_flight() const = 0;
  // Serves /metrics over HTTP at HOST:PORT until this ends.
  virtual absl::Status Serve(const std::string& address) = 0;
};

// `daemon` outlives it.
std::shared_ptr<Metrics> NewMetrics(Daemon* daemon);

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_METRICS_H_
