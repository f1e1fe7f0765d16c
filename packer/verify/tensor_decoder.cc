#include "packer/verify/tensor_decoder.h"

#include <algorithm>

#include "base/file.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"

namespace glyd {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;

using Sink = std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>;

absl::Status DecodeRowRange(const PackView& view, uint64_t row0, uint64_t rows, Scratch& scratch,
                            const Sink& f) {
  const uint64_t row_bytes = 2 * view.meta.cols;
  const uint64_t piece =
      std::max<uint64_t>(kPieceBytes / row_bytes / kStepRows * kStepRows, kStepRows);
  uint8_t* const out = scratch.Get(std::min(piece, rows) * row_bytes);
  for (uint64_t done = 0; done < rows;) {
    const uint64_t n = std::min(piece, rows - done);
    DecodeRows(view, row0 + done, n, reinterpret_cast<uint16_t*>(out));
    GLYD_RETURN_IF_ERROR(f({out, n * row_bytes}, done * row_bytes));
    done += n;
  }
  return absl::OkStatus();
}

// [O, K] to [K, O], in squares that stay in cache.
void Transpose(const uint16_t* from, uint64_t rows, uint64_t cols, uint16_t* to) {
  constexpr uint64_t kSquare = 32;
  for (uint64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (uint64_t c0 = 0; c0 < cols; c0 += kSquare)
      for (uint64_t r = r0; r < std::min(rows, r0 + kSquare); ++r)
        for (uint64_t c = c0; c < std::min(cols, c0 + kSquare); ++c)
          to[c * rows + r] = from[r * cols + c];
}

absl::Status DecodeTransposed(const SavedPack& pack, const PackView& view, Scratch& scratch,
                              const Sink& f) {
  const uint64_t rows = view.meta.rows / pack.experts, cols = view.meta.cols;
  const uint64_t bytes = 2 * rows * cols;
  uint8_t* const memory = scratch.Get(2 * bytes);
  auto* const matrix = reinterpret_cast<uint16_t*>(memory);
  auto* const turned = reinterpret_cast<uint16_t*>(memory + bytes);
  for (uint64_t e = 0; e < pack.experts; ++e) {
    DecodeRows(view, e * rows, rows, matrix);
    Transpose(matrix, rows, cols, turned);
    GLYD_RETURN_IF_ERROR(f({memory + bytes, bytes}, e * bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeMember(const SavedPack& pack, const PackView& view, size_t member,
                          Scratch& scratch, const Sink& f) {
  if (pack.transposed) return DecodeTransposed(pack, view, scratch, f);
  if (pack.experts != 0) return DecodeRowRange(view, 0, view.meta.rows, scratch, f);
  uint64_t row0 = 0;
  for (size_t i = 0; i < member; ++i) row0 += pack.members[i].shape[0];
  return DecodeRowRange(view, row0, pack.members[member].shape[0], scratch, f);
}

absl::Status StreamRaw(const Save& save, const SavedTensor& tensor, Scratch& scratch,
                       const Sink& f) {
  const SaveFile& file = save.files[tensor.file];
  uint8_t* const piece = scratch.Get(kPieceBytes);
  for (uint64_t at = 0; at < tensor.bytes;) {
    const uint64_t n = std::min(kPieceBytes, tensor.bytes - at);
    GLYD_RETURN_IF_ERROR(PreadFull(file.opened.fd.get(), piece, n, tensor.offset + at, file.shown));
    GLYD_RETURN_IF_ERROR(f({piece, n}, at));
    at += n;
  }
  return absl::OkStatus();
}

}  // namespace glyd
