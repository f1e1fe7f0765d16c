#include "server/rpc/status.h"

#include "base/reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace glyd {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  google::rpc::ErrorInfo info;
  const std::string reason = ReasonOf(status);
  info.set_reason(!reason.empty() ? reason : absl::StatusCodeToString(status.code()));
  info.set_domain("glyd");
  details.add_details()->PackFrom(info);
  if (absl::IsResourceExhausted(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      details.SerializeAsString());
}

}  // namespace glyd
