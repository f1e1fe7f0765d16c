#include "kernels/host/target.h"

#include <cstdlib>

namespace glyd {
namespace {

std::vector<HostTarget> Detect() {
  std::vector<HostTarget> targets = {HostTarget::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("popcnt"))
    return targets;
  targets.push_back(HostTarget::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
      __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("bmi2"))
    targets.push_back(HostTarget::kAvx512);
#endif
  return targets;
}

HostTarget Choose() {
  const char* wanted = std::getenv("GLYD_HOST_TARGET");
  if (wanted != nullptr)
    for (const HostTarget target : AvailableTargets())
      if (HostTargetName(target) == wanted) return target;
  return AvailableTargets().back();
}

}  // namespace

absl::string_view HostTargetName(HostTarget target) {
  switch (target) {
    case HostTarget::kScalar:
      return "scalar";
    case HostTarget::kAvx2:
      return "avx2";
    case HostTarget::kAvx512:
      return "avx512";
  }
  return "?";
}

const std::vector<HostTarget>& AvailableTargets() {
  static const auto* const targets = new std::vector<HostTarget>(Detect());
  return *targets;
}

HostTarget ChosenTarget() {
  static const HostTarget target = Choose();
  return target;
}

}  // namespace glyd
