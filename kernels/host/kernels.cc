#include "kernels/host/kernels.h"

#include "kernels/host/internal/targets.h"

namespace glyd {

StepCodes StepCodes::ForMma(const std::array<uint32_t, 3>& tiers) {
  StepCodes codes{.tiers = tiers};
  codes.rank.fill(9);
  // Backwards: where a hand-made table names an exponent twice, its first place counts.
  for (int r = 8; r >= 0; --r) codes.rank[tiers[r / 3] >> 8 * (r % 3) & 0xFF] = r;
  return codes;
}

StepCodes StepCodes::ForMma12(uint32_t hb) { return {.hb = hb}; }

const HostKernels& KernelsFor(HostTarget target) {
  switch (target) {
#if defined(__x86_64__)
    case HostTarget::kAvx2:
      return internal::kAvx2Kernels;
    case HostTarget::kAvx512:
      return internal::kAvx512Kernels;
#endif
    default:
      return internal::kScalarKernels;
  }
}

}  // namespace glyd
