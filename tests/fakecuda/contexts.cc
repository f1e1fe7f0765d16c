#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

#include "tests/fakecuda/fake.h"

using namespace fakecuda;

namespace {

int Physical() { return std::atoi(Env("FAKECUDA_DEVICES", "1").c_str()); }

Uuid UuidOf(int physical) {
  Uuid u = {};
  std::memcpy(u.bytes, "fake", 4);
  const uint64_t tag = std::hash<std::string>()(Env("FAKECUDA_TAG", "0"));
  std::memcpy(u.bytes + 4, &tag, 8);
  u.bytes[15] = static_cast<unsigned char>(physical);
  return u;
}

std::string TextOf(const Uuid& u) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                  u.bytes[i]);
    text += hex;
  }
  return text;
}

// As a driver reads CUDA_VISIBLE_DEVICES: what follows the first name of no GPU does not count, and
// a GPU named twice is none at all.
std::vector<int> Visible() {
  std::vector<int> out;
  const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) {
    for (int i = 0; i < Physical(); ++i) out.push_back(i);
    return out;
  }
  std::stringstream names(chosen);
  for (std::string name; std::getline(names, name, ',');) {
    int found = -1;
    for (int i = 0; i < Physical(); ++i)
      if (name == std::to_string(i) ||
          (name.rfind("GPU-", 0) == 0 && name.size() > 4 && TextOf(UuidOf(i)).rfind(name, 0) == 0))
        found = i;
    if (found < 0) break;
    for (const int other : out)
      if (other == found) return {};
    out.push_back(found);
  }
  return out;
}

bool Known(Device d) { return d >= 0 && d < static_cast<int>(S().visible.size()); }

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  FAKE_ENTER("cuInit", false);
  if (flags != 0) return kInvalidValue;
  State& s = S();
  if (s.initialised) return kSuccess;
  s.visible = Visible();
  if (s.visible.empty()) return kNoDevice;
  s.initialised = true;
  ::pthread_atfork(nullptr, nullptr, [] {
    S().forked = true;
    // Another thread may have held it, which the child does not have.
    new (&S().mu) std::recursive_mutex;
  });
  return kSuccess;
}

Result cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 12040;
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  FAKE_ENTER("cuDeviceGetCount", false);
  *count = static_cast<int>(S().visible.size());
  return kSuccess;
}

Result cuDeviceGet(Device* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet", false);
  if (!Known(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int bytes, Device device) {
  FAKE_ENTER("cuDeviceGetName", false);
  if (!Known(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(bytes), "%s",
                Env("FAKECUDA_NAME", "NVIDIA Double").c_str());
  return kSuccess;
}

Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  FAKE_ENTER("cuDeviceGetUuid", false);
  if (!Known(device)) return kInvalidDevice;
  *uuid = UuidOf(S().visible[device]);
  return kSuccess;
}

Result cuDeviceTotalMem_v2(size_t* bytes, Device device) {
  FAKE_ENTER("cuDeviceTotalMem", false);
  if (!Known(device)) return kInvalidDevice;
  *bytes = std::strtoull(Env("FAKECUDA_MEMORY", "1073741824").c_str(), nullptr, 10);
  return kSuccess;
}

Result cuDeviceGetAttribute(int* out, DeviceAttribute attribute, Device device) {
  FAKE_ENTER("cuDeviceGetAttribute", false);
  if (!Known(device)) return kInvalidDevice;
  const int cc = std::atoi(Env("FAKECUDA_CC", "90").c_str());
  switch (attribute) {
    case kMaxSharedMemoryPerBlock:
      *out = 48 << 10;
      break;
    case kMultiprocessorCount:
      *out = 4;
      break;
    case kIntegrated:
      *out = 0;
      break;
    case kUnifiedAddressing:
      *out = 1;
      break;
    case kComputeCapabilityMajor:
      *out = cc / 10;
      break;
    case kComputeCapabilityMinor:
      *out = cc % 10;
      break;
    case kMaxSharedMemoryPerMultiprocessor:
      *out = 228 << 10;
      break;
    case kMaxSharedMemoryPerBlockOptin:
      *out = 227 << 10;
      break;
    case kVirtualMemoryManagementSupported:
    case kHandleTypePosixFdSupported:
      *out = !Lacks("vmm");
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* out, Device device) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain", false);
  if (!Known(device)) return kInvalidDevice;
  if (S().sticky != kSuccess) return S().sticky;
  CUctx_st& c = S().contexts[S().visible[device]];
  c.device = S().visible[device];
  ++c.refs;
  *out = &c;
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(Device device) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease", false);
  if (!Known(device)) return kInvalidDevice;
  State& s = S();
  const auto it = s.contexts.find(s.visible[device]);
  if (it == s.contexts.end() || it->second.refs == 0) return kInvalidContext;
  if (--it->second.refs > 0) return kSuccess;
  // A driver frees all that is left in it, under whoever uses it.
  size_t left = 0;
  for (const auto& [at, m] : s.mappings) left += m.kind != Mapping::kVmm && m.device == it->first;
  for (const auto& [stream, blocking] : s.streams) left += stream->context == &it->second;
  if (left > 0)
    Log("broken rule: the last release of a context with " + std::to_string(left) +
        " allocations and streams");
  return kSuccess;
}

Result cuCtxGetCurrent(Context* out) {
  FAKE_ENTER("cuCtxGetCurrent", false);
  *out = Current();
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  FAKE_ENTER("cuCtxPushCurrent", false);
  bool known = false;
  for (const auto& [device, c] : S().contexts) known |= &c == context && c.refs > 0;
  if (!known) {
    Log("broken rule: cuCtxPushCurrent of no context, or of one that is gone");
    return kInvalidContext;
  }
  ContextStack().push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* out) {
  FAKE_ENTER("cuCtxPopCurrent", false);
  if (Current() == nullptr) return kInvalidContext;
  if (out != nullptr) *out = Current();
  ContextStack().pop_back();
  return kSuccess;
}

Result cuCtxGetDevice(Device* out) {
  FAKE_ENTER("cuCtxGetDevice", true);
  for (size_t i = 0; i < S().visible.size(); ++i)
    if (S().visible[i] == Current()->device) *out = static_cast<int>(i);
  return kSuccess;
}

Result cuCtxSynchronize() {
  FAKE_ENTER("cuCtxSynchronize", true);
  return RunAll();
}

}  // extern "C"
