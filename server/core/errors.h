#ifndef GLYD_SERVER_CORE_ERRORS_H_
#define GLYD_SERVER_CORE_ERRORS_H_

#include "absl/status/status.h"
#include "base/reason.h"
#include "glyd/worker/v1/worker.pb.h"

namespace glyd {

// What a daemon on its way out answers.
inline absl::Status StoppingError() {
  return WithReason(absl::UnavailableError("the daemon is stopping"), "STOPPING");
}

// A status as it travels between glydd and its workers, and back.
inline worker::v1::FromWorker ErrorMessage(const absl::Status& status) {
  worker::v1::FromWorker m;
  m.mutable_error()->set_code(static_cast<int>(status.code()));
  m.mutable_error()->set_message(std::string(status.message()));
  m.mutable_error()->set_reason(ReasonOf(status));
  return m;
}
inline absl::Status ToStatus(const worker::v1::Error& error) {
  return WithReason(absl::Status(static_cast<absl::StatusCode>(error.code()), error.message()),
                    error.reason());
}

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_ERRORS_H_
