#include "kernels/format/read_tensor.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"

namespace glyd {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

absl::Span<const uint8_t> Bytes(const std::vector<uint16_t>& weights, uint64_t n) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(weights.data()),
                             n * sizeof(uint16_t));
}

}  // namespace

absl::Status ReadPackedTensor(uint64_t cols, const PackedTensor& t, const RowDecoder& decode,
                              const std::function<void(absl::Span<const uint8_t>)>& sink) {
  if (t.transposed_experts == 0) {
    const uint64_t piece =
        std::max<uint64_t>(kPieceBytes / sizeof(uint16_t) / cols / kStepRows, 1) * kStepRows;
    std::vector<uint16_t> buffer(std::min(piece, t.rows) * cols);
    for (uint64_t done = 0; done < t.rows; done += piece) {
      const uint64_t n = std::min(piece, t.rows - done);
      GLYD_RETURN_IF_ERROR(decode(t.row0 + done, n, buffer.data()));
      sink(Bytes(buffer, n * cols));
    }
    return absl::OkStatus();
  }
  const uint64_t rows = t.rows / t.transposed_experts;
  std::vector<uint16_t> matrix(rows * cols), turned(rows * cols);
  for (uint64_t e = 0; e < t.transposed_experts; ++e) {
    GLYD_RETURN_IF_ERROR(decode(t.row0 + e * rows, rows, matrix.data()));
    for (uint64_t r = 0; r < rows; ++r)
      for (uint64_t c = 0; c < cols; ++c) turned[c * rows + r] = matrix[r * cols + c];
    sink(Bytes(turned, turned.size()));
  }
  return absl::OkStatus();
}

}  // namespace glyd
