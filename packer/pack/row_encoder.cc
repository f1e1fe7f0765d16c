#include "packer/pack/row_encoder.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"

namespace glyd {
namespace {

// `exc` ends with 1 to 4 zeros, at a multiple of 4 elements.
uint64_t ExcTail(uint64_t exceptions) {
  return (AlignUp(exceptions + 1, 4) - exceptions) * sizeof(int32_t);
}

}  // namespace

RowEncoder::RowEncoder(const PackMeta& meta, EncodedPack* memory) : meta_(meta), memory_(memory) {
  base_.reserve(StepCount(meta) + 1);
  base_.push_back(static_cast<int32_t>(SideHead()));
}

uint64_t RowEncoder::SideHead() const { return meta_.layout == Layout::kMma ? kMmaHeadBytes : 0; }

uint64_t RowEncoder::SideTail() const {
  return meta_.layout == Layout::kMma ? kMmaTailBytes : ExcTail(side_sum_ / sizeof(int32_t));
}

absl::Status RowEncoder::Add(const uint16_t* weights, uint64_t stride, uint64_t rows,
                             uint64_t cols) {
  PackMeta part = meta_;
  part.rows = rows;
  part.cols = cols;
  GLYD_RETURN_IF_ERROR(EncodeInto(part, weights, stride, memory_));
  const bool mma = meta_.layout == Layout::kMma;
  const int32_t first = memory_->base.front(), last = memory_->base.back();
  // Elements of base count bytes of blocks, or exceptions of 4 bytes.
  const uint64_t unit = mma ? 1 : sizeof(int32_t);
  const uint64_t bytes = static_cast<uint64_t>(last - first) * unit;
  const uint64_t limit = static_cast<uint64_t>(INT32_MAX) * unit;
  if (side_sum_ + bytes + kMmaHeadBytes + kMmaTailBytes > limit)
    return absl::OutOfRangeError(absl::StrCat(
        "a matrix [", meta_.rows, ", ", meta_.cols, "] has more than ", limit, " bytes of ",
        mma ? "blocks" : "exceptions", ", which the format cannot hold"));
  side_ = {memory_->side.data() + SideHead(), bytes};
  const int32_t shift = base_.back() - first;
  for (size_t i = 1; i < memory_->base.size(); ++i) base_.push_back(memory_->base[i] + shift);
  side_sum_ += bytes;
  return absl::OkStatus();
}

uint64_t Mma12SideBytes(const PackMeta& meta, const ExponentHistogram& histogram) {
  constexpr uint32_t kWindow = 8;
  uint64_t outside = 0;
  for (uint32_t e = 0; e < histogram.counts.size(); ++e)
    if (e / 2 < meta.hb || e / 2 >= meta.hb + kWindow) outside += histogram.counts[e];
  return outside * sizeof(int32_t) + ExcTail(outside);
}

}  // namespace glyd
