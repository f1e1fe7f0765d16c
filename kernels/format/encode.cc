#include <algorithm>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/internal/fast.h"
#include "kernels/format/internal/limits.h"
#include "kernels/format/pack.h"

namespace glyd {
namespace internal {
namespace {

// Steps at a time: 64 rows of 256 bytes are copied together first. In place they would be 64
// streams that are often a power of two apart and share a few cache sets.
constexpr uint64_t kTileSteps = 8;
constexpr uint64_t kTileCols = kTileSteps * kStepCols;

// Goes through W a tile at a time: f(first step, steps, the tile's weights, kTileCols apart a row).
template <typename F>
absl::Status ForEachTile(const HostKernels& kernels, const PackMeta& meta, const uint16_t* weights,
                         uint64_t stride, F f) {
  alignas(64) uint16_t tile[kStepRows * kTileCols];
  const uint64_t steps = meta.cols / kStepCols;
  for (uint64_t rb = 0; rb < meta.rows / kStepRows; ++rb)
    for (uint64_t s = 0; s < steps; s += kTileSteps) {
      const uint64_t n = std::min(kTileSteps, steps - s);
      const uint16_t* from = weights + rb * kStepRows * stride + s * kStepCols;
      // The next tile's, while this one is packed. Past the matrix's end it does nothing.
      for (int r = 0; r < kStepRows; ++r)
        for (int line = 0; line < 4; ++line)
          __builtin_prefetch(from + r * stride + kTileCols + 32 * line, 0, 2);
      kernels.copy_rows(from, stride, tile, kTileCols, n);
      GLYD_RETURN_IF_ERROR(f(rb * steps + s, n, tile));
    }
  return absl::OkStatus();
}

absl::Status EncodeMma(const HostKernels& kernels, const PackMeta& meta, const uint16_t* weights,
                       uint64_t stride, EncodedPack* out) {
  const StepCodes codes = StepCodes::ForMma(meta.tiers);
  std::vector<uint8_t>& side = out->side;
  side.assign(kMmaHeadBytes, 0);
  side.reserve(out->data.size() / 4);
  out->base[0] = kMmaHeadBytes;
  uint8_t blocks[kTileSteps * kMaxBlockBytes + kSideSlackBytes];
  uint32_t sizes[kTileSteps];
  GLYD_RETURN_IF_ERROR(ForEachTile(
      kernels, meta, weights, stride,
      [&](uint64_t step, uint64_t n, const uint16_t* tile) -> absl::Status {
        const uint64_t bytes = kernels.encode_mma(codes, tile, {kTileCols, n},
                                                  &out->data[step * kMmaStepBytes], blocks, sizes);
        GLYD_RETURN_IF_ERROR(CheckBlocksBytes(meta, side.size() + bytes + kMmaTailBytes));
        side.insert(side.end(), blocks, blocks + bytes);
        for (uint64_t s = 0; s < n; ++s) out->base[step + s + 1] = out->base[step + s] + sizes[s];
        return absl::OkStatus();
      }));
  side.resize(side.size() + kMmaTailBytes);
  return absl::OkStatus();
}

absl::Status EncodeMma12(const HostKernels& kernels, const PackMeta& meta, const uint16_t* weights,
                         uint64_t stride, EncodedPack* out) {
  const StepCodes codes = StepCodes::ForMma12(meta.hb);
  std::vector<uint8_t>& side = out->side;
  side.clear();
  out->base[0] = 0;
  uint32_t exc[kTileSteps * kMaxStepExceptions + kSideSlackBytes / sizeof(uint32_t)];
  uint32_t sizes[kTileSteps];
  uint64_t count = 0;
  GLYD_RETURN_IF_ERROR(ForEachTile(
      kernels, meta, weights, stride,
      [&](uint64_t step, uint64_t n, const uint16_t* tile) -> absl::Status {
        const uint64_t more = kernels.encode_mma12(codes, tile, {kTileCols, n},
                                                   &out->data[step * kMma12StepBytes], exc, sizes);
        count += more;
        GLYD_RETURN_IF_ERROR(CheckExceptions(meta, count));
        const uint8_t* bytes = reinterpret_cast<const uint8_t*>(exc);
        side.insert(side.end(), bytes, bytes + more * sizeof *exc);
        for (uint64_t s = 0; s < n; ++s) out->base[step + s + 1] = out->base[step + s] + sizes[s];
        return absl::OkStatus();
      }));
  side.resize(AlignUp(count + 1, 4) * sizeof *exc);
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeWith(const HostKernels& kernels, const PackMeta& meta, const uint16_t* weights,
                        uint64_t stride, EncodedPack* out) {
  GLYD_RETURN_IF_ERROR(CheckShape(meta.rows, meta.cols));
  out->meta = meta;
  out->data.resize(DataBytes(meta));
  out->base.resize(StepCount(meta) + 1);
  return meta.layout == Layout::kMma ? EncodeMma(kernels, meta, weights, stride, out)
                                     : EncodeMma12(kernels, meta, weights, stride, out);
}

}  // namespace internal

absl::Status EncodeInto(const PackMeta& meta, const uint16_t* weights, EncodedPack* out) {
  return EncodeInto(meta, weights, meta.cols, out);
}

absl::Status EncodeInto(const PackMeta& meta, const uint16_t* weights, uint64_t stride,
                        EncodedPack* out) {
  return internal::EncodeWith(ChosenKernels(), meta, weights, stride, out);
}

absl::StatusOr<EncodedPack> Encode(const PackMeta& meta, const uint16_t* weights) {
  EncodedPack pack;
  GLYD_RETURN_IF_ERROR(EncodeInto(meta, weights, &pack));
  return pack;
}

absl::StatusOr<EncodedPack> Encode(Layout layout, uint64_t rows, uint64_t cols,
                                   const uint16_t* weights) {
  GLYD_RETURN_IF_ERROR(CheckShape(rows, cols));
  ExponentHistogram h;
  h.Add(weights, rows * cols);
  return Encode(ChooseCodes(layout, rows, cols, h), weights);
}

}  // namespace glyd
