#ifndef GLYD_SERVER_RPC_TLS_LISTENER_H_
#define GLYD_SERVER_RPC_TLS_LISTENER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/tls.h"

namespace glyd {

// The TCP listener: mutual TLS alone, roles by certificate (tls.h). Files that change are read
// again; a pair that is not good is logged and the last good one stays. Each pair has a gRPC server
// of its own, for gRPC's credentials are fixed once it is built: new connections go to the newest,
// older ones live on where they are.
class TlsListener {
 public:
  static absl::StatusOr<std::unique_ptr<TlsListener>> Start(const std::string& address,
                                                            TlsFiles files, Daemon* daemon,
                                                            std::shared_ptr<HealthState> health,
                                                            std::shared_ptr<Metrics> metrics,
                                                            ConnectionCap* cap);
  // Reads the files again, where they have changed.
  void LookAgain();
  // No connection is taken any more.
  void Stop();
  void Shutdown(absl::Duration grace);

 private:
  TlsListener(TlsFiles files, Daemon* daemon, std::shared_ptr<HealthState> health,
              std::shared_ptr<Metrics> metrics);
  absl::Status Use(TlsMaterial material);

  const TlsFiles files_;
  Daemon* const daemon_;
  const std::shared_ptr<HealthState> health_;
  const std::shared_ptr<Metrics> metrics_;
  TlsMaterial material_;  // LookAgain's alone, after Start
  std::string last_error_;
  absl::Mutex mu_;
  std::vector<std::shared_ptr<GrpcServer>> servers_ ABSL_GUARDED_BY(mu_);  // the newest last
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_TLS_LISTENER_H_
