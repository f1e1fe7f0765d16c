#include "kernels/device/cuda/driver.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/reason.h"
#include "base/status_macros.h"

namespace glyd::cu {
namespace {

constexpr char kDeviceLost[] = "DEVICE_LOST";

absl::StatusCode CodeOf(Result r) {
  switch (r) {
    case kInvalidValue:
    case kInvalidHandle:
    case kInvalidImage:
      return absl::StatusCode::kInvalidArgument;
    case kOutOfMemory:
    case kLaunchOutOfResources:
      return absl::StatusCode::kResourceExhausted;
    case kNoDevice:
    case kInvalidDevice:
    case kNotFound:
      return absl::StatusCode::kNotFound;
    case kNotSupported:
    case kNoBinaryForGpu:
      return absl::StatusCode::kUnimplemented;
    case kNotPermitted:
      return absl::StatusCode::kPermissionDenied;
    case kNotReady:
    case kSystemNotReady:
      return absl::StatusCode::kUnavailable;
    case kNotInitialized:
    case kDeinitialized:
    case kStubLibrary:
    case kInvalidContext:
    case kAlreadyMapped:
    case kSystemDriverMismatch:
    case kCompatNotSupportedOnDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<const Driver*> GetDriver() {
  const Driver::Opened& opened = Driver::Open();
  if (opened.driver != nullptr) return opened.driver;
  // A machine without one is as it should be; a driver that does not start is not.
  const bool none = opened.result == kNoDevice || opened.result == kInsufficientDriver;
  return absl::Status(none ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
                      opened.why);
}

bool IsSticky(const absl::Status& status) { return ReasonOf(status) == kDeviceLost; }

absl::Status ToStatus(Result r, absl::string_view what) {
  if (r == kSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(what, ": ", Driver::NameOf(r), " (", static_cast<int>(r), ")");
  if (IsSticky(r)) return WithReason(absl::UnavailableError(text), kDeviceLost);
  return absl::Status(CodeOf(r), text);
}

std::string UuidText(const Uuid& u) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i)
    absl::StrAppendFormat(&text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                          u.bytes[i]);
  return text;
}

ScopedContext::ScopedContext(const Driver& driver, Context context) : driver_(driver) {
  status_ = ToStatus(driver.CtxPushCurrent(context), "making the GPU's context current");
}

ScopedContext::~ScopedContext() {
  Context gone;
  if (status_.ok()) driver_.CtxPopCurrent(&gone);
}

}  // namespace glyd::cu
