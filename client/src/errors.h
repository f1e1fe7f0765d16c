#ifndef GLYD_CLIENT_SRC_ERRORS_H_
#define GLYD_CLIENT_SRC_ERRORS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/reason.h"

namespace glyd::internal {

// A call's outcome: its code, its text, and from its google.rpc.Status details the reason
// (ErrorInfo of domain "glyd") and the wait asked for (RetryInfo). Unavailable without details,
// which is the transport's own word for a lost connection, has kReasonConnectionLost and names
// `server`.
absl::Status ToStatus(const grpc::Status& status, absl::string_view server);

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_ERRORS_H_
