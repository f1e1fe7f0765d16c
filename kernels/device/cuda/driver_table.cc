#include "kernels/device/cuda/driver_table.h"

#include <dlfcn.h>

#include <atomic>

namespace glyd::cu {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
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

Driver::Opened Load() {
  // Never closed: the driver has threads and handlers of its own.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return {nullptr, kInsufficientDriver,
            std::string("no NVIDIA driver: ") + (why == nullptr ? kLibrary : why)};
  }
  // The first version of cuGetProcAddress, which every driver since 11.3 exports.
  const auto ask = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress"));
  static Driver driver;
#define GLYD_CUDA_FIND(member, name, symbol, needed, args)                            \
  driver.member = reinterpret_cast<Result(*) args>(Find(library, ask, name, symbol)); \
  if (needed && driver.member == nullptr)                                             \
    return {nullptr, kInsufficientDriver,                                             \
            "the NVIDIA driver has no " symbol ": a driver of CUDA 11.8 or newer is needed"};
  GLYD_CUDA_FUNCTIONS(GLYD_CUDA_FIND)
#undef GLYD_CUDA_FIND
  loaded = &driver;
  Result r = driver.Init(0);
  if (r == kNoDevice) return {nullptr, r, "the NVIDIA driver finds no GPU"};
  if (r == kSuccess) r = driver.DriverGetVersion(&driver.version);
  if (r != kSuccess)
    return {
        nullptr, r,
        "the NVIDIA driver does not start: " + Driver::NameOf(r) + " (" + std::to_string(r) + ")"};
  return {&driver, kSuccess, ""};
}

}  // namespace

const Driver::Opened& Driver::Open() {
  static const Opened opened = Load();
  return opened;
}

std::string Driver::NameOf(Result r) {
  const char* name = nullptr;
  if (const Driver* driver = loaded) driver->GetErrorName(r, &name);
  return name == nullptr ? "CUDA error" : name;
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

}  // namespace glyd::cu
