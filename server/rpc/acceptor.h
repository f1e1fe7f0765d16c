#ifndef GLYD_SERVER_RPC_ACCEPTOR_H_
#define GLYD_SERVER_RPC_ACCEPTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"

namespace glyd {

// How many connections there may be, in all and of one peer. gRPC, which has them, does not say
// when one ends: each is known by its socket's inode. Thread-safe.
class ConnectionCap {
 public:
  ConnectionCap(size_t total, size_t per_peer) : total_(total), per_peer_(per_peer) {}
  // false: it would be one too many. `peer`: the process's id; 0 counts in `total` alone; below 0,
  // -1 - uid: all processes of a user whose ids another PID namespace hides.
  bool Admit(const UniqueFd& connection, int64_t peer);

 private:
  struct Open {
    int fd;
    uint64_t inode;
    int64_t peer;
  };
  bool Full(int64_t peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t total_, per_peer_;
  absl::Mutex mu_;
  std::vector<Open> open_ ABSL_GUARDED_BY(mu_);
};

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
