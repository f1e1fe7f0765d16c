#include "client/src/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/bytes.h"
#include "glyd/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace glyd {
namespace {

// The wait that the daemon asks for, as absl::FormatDuration writes it.
constexpr char kRetryAfterPayload[] = "type.glyd/retry-after";

}  // namespace

std::string Reason(const absl::Status& status) { return ReasonOf(status); }

absl::Duration RetryAfter(const absl::Status& status) {
  const absl::optional<absl::Cord> wait = status.GetPayload(kRetryAfterPayload);
  absl::Duration d;
  return wait.has_value() && absl::ParseDuration(std::string(*wait), &d) ? d : absl::ZeroDuration();
}

namespace internal {

absl::Status ToStatus(const grpc::Status& status, absl::string_view server) {
  if (status.ok()) return absl::OkStatus();
  std::string reason;
  absl::Duration wait = absl::ZeroDuration();
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : details.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::RetryInfo retry;
      if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info) && info.domain() == "glyd") {
        reason = info.reason();
      } else if (any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
        wait = absl::Seconds(retry.retry_delay().seconds()) +
               absl::Nanoseconds(retry.retry_delay().nanos());
      }
    }
  }
  // The numbers of gRPC's codes are Abseil's.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable && reason.empty())
    return WithReason(absl::UnavailableError(absl::StrCat("the connection to ", Printable(server),
                                                          " was lost: is glydd still running?")),
                      kReasonConnectionLost);
  const std::string text = status.error_message().empty()
                               ? absl::StrCat(Printable(server), " answers ",
                                              absl::StatusCodeToString(code), " and no more")
                               : status.error_message();
  absl::Status s = WithReason(absl::Status(code, text), reason);
  if (wait > absl::ZeroDuration())
    s.SetPayload(kRetryAfterPayload, absl::Cord(absl::FormatDuration(wait)));
  return s;
}

}  // namespace internal
}  // namespace glyd
