#ifndef GLYD_PACKER_INTERNAL_PARTS_H_
#define GLYD_PACKER_INTERNAL_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"
#include "packer/internal/hash_jobs.h"

namespace glyd {

// Some steps of a matrix, one after the other in its pack: rows of it, or part of one row block.
struct MatrixPart {
  uint64_t row = 0, rows = 0;  // multiples of 64
  uint64_t col = 0, cols = 0;  // multiples of 16
};

// Rows of a matrix in a piece: whole row blocks, one at least.
inline uint64_t PieceRows(uint64_t cols) {
  return std::max<uint64_t>(kPieceBytes / (2 * cols) / kStepRows * kStepRows, kStepRows);
}

// f(part), a Status, for the parts of `rows` rows in the order of their steps. Where a row block is
// larger than a piece it is cut: a matrix of few long rows takes no more than itself.
template <typename F>
absl::Status ForEachPart(uint64_t rows, uint64_t cols, F f) {
  constexpr uint64_t kPartCols = 6144;
  static_assert(2 * kStepRows * kPartCols == kPieceBytes && kPartCols % kStepCols == 0);
  if (cols <= kPartCols) {
    const uint64_t most = PieceRows(cols);
    for (uint64_t row = 0; row < rows; row += most)
      GLYD_RETURN_IF_ERROR(f(MatrixPart{row, std::min(most, rows - row), 0, cols}));
    return absl::OkStatus();
  }
  for (uint64_t row = 0; row < rows; row += kStepRows)
    for (uint64_t col = 0; col < cols; col += kPartCols)
      GLYD_RETURN_IF_ERROR(f(MatrixPart{row, kStepRows, col, std::min(kPartCols, cols - col)}));
  return absl::OkStatus();
}

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_PARTS_H_
