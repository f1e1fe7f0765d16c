#include "kernels/linear/internal/tile.h"

#include <bit>

// This file is compiled with -ffp-contract=off: a product fused into its sum would give other bits
// where the product overflows or is subnormal, on the machines that fuse alone.

namespace glyd::internal {
namespace {

float Widen(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }

__attribute__((always_inline)) inline void AddTileBody(const uint16_t* w, int steps, const float* x,
                                                       uint64_t x_stride, uint64_t m, float* sums) {
  const int cols = steps * kStepCols;
  alignas(64) float row[kTileCols];
  for (int r = 0; r < kStepRows; ++r, w += cols, sums += kSums) {
    for (int s = 0; s < steps; ++s)
      for (int p = 0; p < kSums; ++p) {
        row[kStepCols * s + p] = Widen(w[kStepCols * s + 2 * p]);
        row[kStepCols * s + kSums + p] = Widen(w[kStepCols * s + 2 * p + 1]);
      }
    for (uint64_t i = 0; i < m; ++i) {
      const float* xi = x + i * x_stride;
      float* out = sums + i * (kStepRows * kSums);
      float sum[kSums];
      for (int p = 0; p < kSums; ++p) sum[p] = out[p];
      for (int c = 0; c < cols; c += kSums)
        for (int p = 0; p < kSums; ++p) sum[p] += row[c + p] * xi[c + p];
      for (int p = 0; p < kSums; ++p) out[p] = sum[p];
    }
  }
}

using AddTileFn = void(const uint16_t*, int, const float*, uint64_t, uint64_t, float*);

void AddTileScalar(const uint16_t* w, int steps, const float* x, uint64_t x_stride, uint64_t m,
                   float* sums) {
  AddTileBody(w, steps, x, x_stride, m, sums);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void AddTileAvx2(const uint16_t* w, int steps, const float* x,
                                                 uint64_t x_stride, uint64_t m, float* sums) {
  AddTileBody(w, steps, x, x_stride, m, sums);
}

AddTileFn* ChooseAddTile() { return __builtin_cpu_supports("avx2") ? AddTileAvx2 : AddTileScalar; }
#else
AddTileFn* ChooseAddTile() { return AddTileScalar; }
#endif

}  // namespace

void SplitColumns(const uint16_t* x, uint64_t n, float* out) {
  for (uint64_t c = 0; c < n; c += kStepCols)
    for (int p = 0; p < kSums; ++p) {
      out[c + p] = Widen(x[c + 2 * p]);
      out[c + kSums + p] = Widen(x[c + 2 * p + 1]);
    }
}

void AddTile(const uint16_t* w, int steps, const float* x, uint64_t x_stride, uint64_t m,
             float* sums) {
  static AddTileFn* const add_tile = ChooseAddTile();
  add_tile(w, steps, x, x_stride, m, sums);
}

}  // namespace glyd::internal
