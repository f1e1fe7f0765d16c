#include <bit>
#include <cmath>
#include <limits>

#include "kernels/host/internal/targets.h"

namespace glyd::internal {
namespace {

// fma(a, b, c) of floats that were bf16. Where the machine has it that is one instruction; where it
// would be a call, the product of 8-bit significands is exact as a float unless it overflows or is
// subnormal.
float FusedMultiplyAdd(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  const float product = a * b, size = std::fabs(product);
  if (size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max())
    return product + c;
  return std::fma(a, b, c);
#endif
}

}  // namespace

void PanelFromRows(const uint16_t* rows, uint64_t steps, float* panel) {
  for (int g = 0; g < 8; ++g)
    for (int pair = 0; pair < kPanelPairs; ++pair)
      for (int row = 0; row < 2; ++row) {
        const uint16_t* from = rows + (8 * kPanelRows[pair][row] + g) * kStepCols * kPanelSteps;
        for (uint64_t s = 0; s < steps; ++s)
          for (int column = 0; column < kStepCols; ++column)
            panel[PanelAt(g, pair, s) + 16 * (column & 1) + 8 * row + (column >> 1)] =
                std::bit_cast<float>(uint32_t{from[kStepCols * s + column]} << 16);
      }
}

void MultiplyPanelScalar(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                         uint64_t m, float* sums) {
  for (uint64_t i = 0; i < m; ++i, x += x_stride)
    for (int at = 0; at < 8 * kPanelPairs; ++at, sums += 16)
      for (uint64_t s = 0; s < steps; ++s)
        for (int parity = 0; parity < 2; ++parity) {
          const float* w = panel + PanelAt(0, at, s) + 16 * parity;
          const float* v = x + kStepCols * s + 8 * parity;
          for (int p = 0; p < 16; ++p) sums[p] = FusedMultiplyAdd(w[p], v[p & 7], sums[p]);
        }
}

}  // namespace glyd::internal
