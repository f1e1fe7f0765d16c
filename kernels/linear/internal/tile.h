#ifndef GLYD_KERNELS_LINEAR_INTERNAL_TILE_H_
#define GLYD_KERNELS_LINEAR_INTERNAL_TILE_H_

#include <cstdint>

#include "kernels/format/step.h"

namespace glyd::internal {

// The inner part of a product on the CPU. Columns of 16 lie split, the even ones first: one vector
// of 8 takes its share of every sum. A tile is a row block's next `steps` steps: w[row][16 * steps]
// decoded, as bf16 in W's order.

inline constexpr int kSums = 8;  // a row's, kernels/linear/linear.h
inline constexpr int kTileSteps =
    8;  // 64 x 128 weights: 16 KB, with their x in a first-level cache
inline constexpr int kTileCols = kTileSteps * kStepCols;

// bf16 -> fp32 with each 16 columns split; n is a multiple of 16.
void SplitColumns(const uint16_t* x, uint64_t n, float* out);

// sums[i][row][p] += the tile's products with x row i of m; x rows are `x_stride` floats apart,
// split, and start at the tile's first column.
void AddTile(const uint16_t* w, int steps, const float* x, uint64_t x_stride, uint64_t m,
             float* sums);

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_LINEAR_INTERNAL_TILE_H_
