#ifndef GLYD_SERVER_CORE_SESSIONS_H_
#define GLYD_SERVER_CORE_SESSIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace glyd {

// `bytes` of the kernel's randomness.
std::string RandomBytes(size_t bytes);
uint64_t RandomNumber();

struct Session {
  uint64_t id = 0;
  int pid = 0;  // 0 where the peer's is not of this PID namespace
  uint32_t uid = 0;
  std::string command;  // /proc/PID/comm at the connection
  absl::Time since;
};

// Who is connected to the broker. Thread-safe.
class Sessions {
 public:
  explicit Sessions(int max) : max_(max) {}

  struct Begun {
    Session session;
    std::string token;  // 32 bytes
  };
  // ResourceExhausted, reason TOO_MANY_SESSIONS, with the limit.
  absl::StatusOr<Begun> Begin(int pid, uint32_t uid);
  void End(uint64_t id);
  // The session of a token in hex. Unauthenticated, reason NO_SESSION.
  absl::StatusOr<Session> Find(absl::string_view hex_token) const;
  size_t count() const;

 private:
  const int max_;
  mutable absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::unordered_map<std::string, Session> by_token_ ABSL_GUARDED_BY(mu_);  // hex
  std::unordered_map<uint64_t, std::string> tokens_ ABSL_GUARDED_BY(mu_);
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_SESSIONS_H_
