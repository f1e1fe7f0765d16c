#if defined(__x86_64__)

#include "kernels/host/internal/avx2.h"
#include "kernels/host/internal/targets.h"

namespace glyd::internal::avx2 {
namespace {

// Of a pair's two vectors by two rows of x: 16 registers hold two pairs' sums, their weights and
// one of x.
template <int kRows>
GLYD_AVX2_INLINE void MultiplyRows(const float* panel, uint64_t steps, const float* x,
                                   uint64_t x_stride, float* sums) {
  for (int two = 0; two < 8 * kPanelPairs; two += 2) {
    const float* w = panel + PanelAt(0, two, 0);
    float* at = sums + SumsAt(0, two);
    __m256 sum[kRows][4];
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < 4; ++v) sum[i][v] = _mm256_loadu_ps(at + i * kSumFloats + 8 * v);
    for (uint64_t s = 0; s < steps; ++s)
      for (int parity = 0; parity < 2; ++parity)
        for (int i = 0; i < kRows; ++i) {
          const __m256 xi = _mm256_loadu_ps(x + i * x_stride + kStepCols * s + 8 * parity);
          for (int v = 0; v < 4; ++v) {
            const float* wv = w + PanelAt(0, v >> 1, s) + 16 * parity + 8 * (v & 1);
            sum[i][v] = _mm256_fmadd_ps(_mm256_loadu_ps(wv), xi, sum[i][v]);
          }
        }
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < 4; ++v) _mm256_storeu_ps(at + i * kSumFloats + 8 * v, sum[i][v]);
  }
}

}  // namespace

GLYD_AVX2 void MultiplyPanel(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                             uint64_t m, float* sums) {
  for (; m >= 2; m -= 2, x += 2 * x_stride, sums += 2 * kSumFloats)
    MultiplyRows<2>(panel, steps, x, x_stride, sums);
  if (m > 0) MultiplyRows<1>(panel, steps, x, x_stride, sums);
}

}  // namespace glyd::internal::avx2

#endif  // __x86_64__
