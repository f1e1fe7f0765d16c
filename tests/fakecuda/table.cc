#include <dlfcn.h>

#include <cstring>

#include "tests/fakecuda/fake.h"

using namespace fakecuda;

namespace {

constexpr struct {
  Result result;
  const char* name;
} kNames[] = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kMapFailed, "CUDA_ERROR_MAP_FAILED"},
    {kAlreadyMapped, "CUDA_ERROR_ALREADY_MAPPED"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {kOperatingSystem, "CUDA_ERROR_OPERATING_SYSTEM"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND"},
    {kNotReady, "CUDA_ERROR_NOT_READY"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
    {kUnknown, "CUDA_ERROR_UNKNOWN"},
};

}  // namespace

extern "C" {

Result cuGetErrorName(Result result, const char** out) {
  *out = nullptr;
  for (const auto& n : kNames)
    if (n.result == result) *out = n.name;
  return *out == nullptr ? kInvalidValue : kSuccess;
}

// The texts are nobody's contract: the name does.
Result cuGetErrorString(Result result, const char** out) { return cuGetErrorName(result, out); }

Result cuGetProcAddress(const char* name, void** out, int, uint64_t) {
  *out = nullptr;
  // Of this library, whatever else exports the name.
  static void* self = [] {
    Dl_info info;
    return ::dladdr(reinterpret_cast<void*>(&cuGetErrorName), &info) == 0
               ? nullptr
               : ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  if (self == nullptr) return kUnknown;
#define FAKE_FIND(member, wanted, symbol, needed, args) \
  if (std::strcmp(name, wanted) == 0) *out = ::dlsym(self, symbol);
  GLYD_CUDA_FUNCTIONS(FAKE_FIND)
#undef FAKE_FIND
  return *out == nullptr ? kNotFound : kSuccess;
}

}  // extern "C"
