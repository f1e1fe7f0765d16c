#ifndef GLYD_SERVER_RPC_ACCEPTOR_H_
#define GLYD_SERVER_RPC_ACCEPTOR_H_

#include <atomic>
#include <functional>
#include <thread>

#include "base/unique_fd.h"

namespace glyd {

// Accepts connections on a listener of our own, on a thread of its own. gRPC's listeners stop for
// good after one exhaustion of descriptors (CVE-2023-4785, unfixed in 1.51) and authenticate
// nobody.
class Acceptor {
 public:
  // `listener` is bound and listens; `take` is given each connection and closes those it does not
  // want.
  Acceptor(UniqueFd listener, std::function<void(UniqueFd)> take);
  ~Acceptor() { Stop(); }
  // No connection is taken any more.
  void Stop();

 private:
  void Run();

  const UniqueFd listener_, wake_;
  const std::function<void(UniqueFd)> take_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_ACCEPTOR_H_
