#include "kernels/device/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/reason.h"
#include "base/status_macros.h"

namespace glyd::cu {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
constexpr char kDeviceLost[] = "DEVICE_LOST";
// Functions are asked for as CUDA 11.8 has them: what they take never changes under us, however new
// the driver is.
constexpr int kOldestVersion = 11080;
// Those that came later are asked for as CUDA 12.0 has them.
constexpr int kNewestVersion = 12000;

using GetProcAddress = Result (*)(const char*, void**, int, uint64_t);

std::atomic<const Driver*> loaded{nullptr};  // for the names of errors, from the first one on

void* Find(void* library, GetProcAddress ask, const char* name, const char* symbol) {
  void* f = nullptr;
  for (const int version : {kOldestVersion, kNewestVersion})
    if (ask != nullptr && ask(name, &f, version, 0) == kSuccess && f != nullptr) return f;
  return ::dlsym(library, symbol);
}

absl::StatusOr<const Driver*> Load() {
  // Never closed: the driver has threads and handlers of its own.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver: ", why == nullptr ? kLibrary : why));
  }
  // The first version of cuGetProcAddress, which every driver since 11.3 exports.
  const auto ask = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress"));
  static Driver driver;
#define GLYD_CUDA_FIND(member, name, symbol, needed, args)                                   \
  driver.member = reinterpret_cast<Result(*) args>(Find(library, ask, name, symbol));        \
  if (needed && driver.member == nullptr)                                                    \
    return absl::FailedPreconditionError(absl::StrCat("the NVIDIA driver has no ", symbol,   \
                                                      ": a driver of CUDA 11.8 or newer is " \
                                                      "needed"));
  GLYD_CUDA_FUNCTIONS(GLYD_CUDA_FIND)
#undef GLYD_CUDA_FIND
  loaded = &driver;
  const Result r = driver.Init(0);
  if (r == kNoDevice) return absl::NotFoundError("the NVIDIA driver finds no GPU");
  if (r != kSuccess)
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver does not start: ", ToStatus(r, "cuInit").message()));
  GLYD_RETURN_IF_ERROR(ToStatus(driver.DriverGetVersion(&driver.version), "the driver's version"));
  return &driver;
}

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

absl::StatusOr<const Driver*> Driver::Get() {
  static const absl::StatusOr<const Driver*> driver = Load();
  return driver;
}

bool IsSticky(Result r) {
  switch (r) {
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kContained:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextIsDestroyed:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
    case kTensorMemoryLeak:
    case kUnknown:  // nothing is known of what still works
      return true;
    default:
      return false;
  }
}

bool IsSticky(const absl::Status& status) { return ReasonOf(status) == kDeviceLost; }

absl::Status ToStatus(Result r, absl::string_view what) {
  if (r == kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  if (const Driver* driver = loaded) driver->GetErrorName(r, &name);
  const std::string text = absl::StrCat(what, ": ", name == nullptr ? "CUDA error" : name, " (",
                                        static_cast<int>(r), ")");
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
