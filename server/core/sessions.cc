#include "server/core/sessions.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/reason.h"

namespace glyd {

std::string RandomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  size_t at = 0;
  while (at < bytes) {
    const ssize_t n = ::getrandom(out.data() + at, bytes - at, 0);
    if (n > 0) at += n;
    // Tokens without randomness would be guessable: there is nothing to go on with.
    if (n < 0 && errno != EINTR) std::abort();
  }
  return out;
}

uint64_t RandomNumber() { return LoadLe64(RandomBytes(sizeof(uint64_t)).data()); }

absl::StatusOr<Sessions::Begun> Sessions::Begin(int pid, uint32_t uid) {
  Begun out;
  out.token = RandomBytes(32);
  out.session.pid = pid;
  out.session.uid = uid;
  out.session.since = absl::Now();
  if (pid > 0) {
    std::ifstream comm(absl::StrCat("/proc/", pid, "/comm"));
    std::getline(comm, out.session.command);
  }
  absl::MutexLock lock(&mu_);
  if (by_token_.size() >= static_cast<size_t>(max_))
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          by_token_.size(), " sessions, at most ", max_, " (--max-clients)")),
                      "TOO_MANY_SESSIONS");
  out.session.id = next_++;
  const std::string hex = absl::BytesToHexString(out.token);
  tokens_[out.session.id] = hex;
  by_token_[hex] = out.session;
  return out;
}

void Sessions::End(uint64_t id) {
  absl::MutexLock lock(&mu_);
  const auto it = tokens_.find(id);
  if (it == tokens_.end()) return;
  by_token_.erase(it->second);
  tokens_.erase(it);
}

absl::StatusOr<Session> Sessions::Find(absl::string_view hex_token) const {
  absl::MutexLock lock(&mu_);
  const auto it = by_token_.find(std::string(hex_token.substr(0, 64)));
  if (hex_token.size() != 64 || it == by_token_.end())
    return WithReason(
        absl::UnauthenticatedError(hex_token.empty()
                                       ? "this call needs a session: connect to the broker first"
                                       : "the session has ended: connect to the broker again"),
        "NO_SESSION");
  return it->second;
}

size_t Sessions::count() const {
  absl::MutexLock lock(&mu_);
  return by_token_.size();
}

}  // namespace glyd
