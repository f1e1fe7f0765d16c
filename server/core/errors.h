#ifndef GLYD_SERVER_CORE_ERRORS_H_
#define GLYD_SERVER_CORE_ERRORS_H_

#include "absl/status/status.h"
#include "base/reason.h"

namespace glyd {

// What a daemon on its way out answers.
inline absl::Status StoppingError() {
  return WithReason(absl::UnavailableError("the daemon is stopping"), "STOPPING");
}

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_ERRORS_H_
