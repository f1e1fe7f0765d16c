#ifndef GLYD_CLIENT_SRC_SESSION_H_
#define GLYD_CLIENT_SRC_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace glyd::v1 {
class BrokerReply;
class BrokerRequest;
}  // namespace glyd::v1

namespace glyd::internal {

// A connection to the broker, which is a session: leases and arenas are its, and end when it
// closes. Whoever holds a lease or an arena keeps the session by a shared_ptr, so it closes with
// the last of them.
//
// Thread-safe; a round trip at a time.
class Session {
 public:
  // Connects and says hello. Each send and receive later takes `timeout` at most.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const std::string& broker_path,
                                                       absl::Duration timeout);

  struct Memory {
    UniqueFd fd;
    uint64_t bytes = 0;
  };
  struct LeaseMemory {
    Memory memory;  // no fd where the memory does not travel by descriptor
    Memory table;
  };
  absl::StatusOr<LeaseMemory> FetchLease(absl::string_view lease_id);
  absl::StatusOr<Memory> FetchArena(absl::string_view arena_id);

  // What the calls of this session carry as "glyd-session".
  const std::string& token() const { return token_; }
  // Of the daemon's run that gave it.
  uint64_t generation() const { return generation_; }
  // To poll for the session's end (POLLRDHUP); never to read.
  int poll_fd() const { return socket_.get(); }
  // false once the daemon has closed it or a round trip broke off.
  bool usable();

 private:
  explicit Session(UniqueFd socket) : socket_(std::move(socket)) {}
  // A reply that is no error, and its descriptors.
  absl::StatusOr<v1::BrokerReply> RoundTrip(const v1::BrokerRequest& request,
                                            std::vector<UniqueFd>* fds);

  const UniqueFd socket_;
  absl::Mutex mutex_;  // held for a round trip
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  std::string token_;
  uint64_t generation_ = 0;
};

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_SESSION_H_
