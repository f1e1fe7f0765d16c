#ifndef GLYD_STATUS_H_
#define GLYD_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace glyd {

// Reasons that this library gives itself; the daemon's own are listed in docs/errors.md.
inline constexpr absl::string_view kReasonNoDaemon = "NO_DAEMON";  // nobody answers there
inline constexpr absl::string_view kReasonConnectionLost =
    "CONNECTION_LOST";  // it went during a call

// The stable reason of a failure, UPPER_SNAKE_CASE; empty where it has none.
std::string Reason(const absl::Status& status);

// How long the daemon asks to wait before the same call again; zero where it does not.
absl::Duration RetryAfter(const absl::Status& status);

}  // namespace glyd

#endif  // GLYD_STATUS_H_
