#ifndef GLYD_SERVER_RPC_STATUS_H_
#define GLYD_SERVER_RPC_STATUS_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace glyd {

// A status as gRPC sends it: the same code and text, and in the details google.rpc.ErrorInfo
// (domain "glyd", the status's reason, or its code's name) and, for RESOURCE_EXHAUSTED,
// google.rpc.RetryInfo.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_STATUS_H_
