#if defined(__x86_64__)

#include "kernels/host/internal/avx512.h"

namespace glyd::internal::avx512 {
namespace {

// Rows of x together: 16 sums in registers, 4 vectors of weights and 4 of x loaded for 16
// multiply-adds.
constexpr int kRowsTogether = 4;

template <int kRows>
GLYD_AVX512_INLINE void MultiplyRows(const float* panel, uint64_t steps, const float* x,
                                     uint64_t x_stride, float* sums) {
  for (int g = 0; g < 8; ++g) {
    __m512 sum[kRows][kPanelPairs];
    for (int i = 0; i < kRows; ++i)
      for (int pair = 0; pair < kPanelPairs; ++pair)
        sum[i][pair] = _mm512_loadu_ps(sums + i * kSumFloats + SumsAt(g, pair));
    for (uint64_t s = 0; s < steps; ++s)
      for (int parity = 0; parity < 2; ++parity) {
        __m512 w[kPanelPairs];
        for (int pair = 0; pair < kPanelPairs; ++pair)
          w[pair] = _mm512_loadu_ps(panel + PanelAt(g, pair, s) + 16 * parity);
        for (int i = 0; i < kRows; ++i) {
          const __m512 v = _mm512_broadcast_f32x8(
              _mm256_loadu_ps(x + i * x_stride + kStepCols * s + 8 * parity));
          for (int pair = 0; pair < kPanelPairs; ++pair)
            sum[i][pair] = _mm512_fmadd_ps(w[pair], v, sum[i][pair]);
        }
      }
    for (int i = 0; i < kRows; ++i)
      for (int pair = 0; pair < kPanelPairs; ++pair)
        _mm512_storeu_ps(sums + i * kSumFloats + SumsAt(g, pair), sum[i][pair]);
  }
}

}  // namespace

GLYD_AVX512 void MultiplyPanel(const float* panel, uint64_t steps, const float* x,
                               uint64_t x_stride, uint64_t m, float* sums) {
  for (; m >= kRowsTogether; m -= kRowsTogether) {
    MultiplyRows<kRowsTogether>(panel, steps, x, x_stride, sums);
    x += kRowsTogether * x_stride, sums += kRowsTogether * kSumFloats;
  }
  switch (m) {
    case 3:
      return MultiplyRows<3>(panel, steps, x, x_stride, sums);
    case 2:
      return MultiplyRows<2>(panel, steps, x, x_stride, sums);
    case 1:
      return MultiplyRows<1>(panel, steps, x, x_stride, sums);
  }
}

}  // namespace glyd::internal::avx512

#endif  // __x86_64__
