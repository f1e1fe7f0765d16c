#ifndef GLYD_KERNELS_HOST_TARGET_H_
#define GLYD_KERNELS_HOST_TARGET_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace glyd {

// Instruction sets that host code is written for. Every one gives the same bytes.
enum class HostTarget {
  kScalar,
  kAvx2,
  kAvx512,  // F, BW, DQ, VL, VBMI, VBMI2, VPOPCNTDQ: Ice Lake, Zen 4 and later
};

absl::string_view HostTargetName(HostTarget target);  // "scalar", "avx2", "avx512"

// Those that this processor and operating system run, kScalar always, best last.
const std::vector<HostTarget>& AvailableTargets();

// What is used: the best, or what GLYD_HOST_TARGET names where that is available. Decided once a
// process.
HostTarget ChosenTarget();

}  // namespace glyd

#endif  // GLYD_KERNELS_HOST_TARGET_H_
