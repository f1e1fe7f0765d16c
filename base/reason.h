#ifndef GLYD_BASE_REASON_H_
#define GLYD_BASE_REASON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace glyd {

// A stable reason for programs (docs/errors.md) beside a status's text for people. It travels over
// gRPC as google.rpc.ErrorInfo. The payload's key, its value the reason's text:
inline constexpr char kReasonPayload[] = "type.glyd/reason";

// Of a ResourceExhausted for want of memory, where others are for want of disk.
inline constexpr char kReasonNoMemory[] = "NO_MEMORY";

inline absl::Status WithReason(absl::Status status, absl::string_view reason) {
  if (!status.ok() && !reason.empty()) status.SetPayload(kReasonPayload, absl::Cord(reason));
  return status;
}

// Empty where there is none.
inline std::string ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace glyd

#endif  // GLYD_BASE_REASON_H_
