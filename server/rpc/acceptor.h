#ifndef GLYD_SERVER_RPC_ACCEPTOR_H_
#define GLYD_SERVER_RPC_ACCEPTOR_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/unique_fd.h"
#include "server/broker/broker.h"

namespace glyd {

// Accepts connections on our own listener and hands them to gRPC, whose listeners stop for good
// after one exhaustion of descriptors (CVE-2023-4785, unfixed in 1.51) and authenticate nobody.
class Acceptor {
 public:
  // `listener` is bound and listens. A peer that is not allowed is closed at once.
  Acceptor(UniqueFd listener, AllowedPeers allowed,
           std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc);
  ~Acceptor() { Stop(); }
  // No connection is taken any more.
  void Stop();

 private:
  void Run();

  const UniqueFd listener_, wake_;
  const AllowedPeers allowed_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_ACCEPTOR_H_
