#ifndef GLYD_PACKER_PACK_ROW_ENCODER_H_
#define GLYD_PACKER_PACK_ROW_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/format/pack.h"

namespace glyd {

// Packs a matrix part by part, so that it need not be in memory whole. The buffers' parts,
// one after the other between SideHead and SideTail, are those that Encode makes of the whole
// matrix.
class RowEncoder {
 public:
  // `meta` is the whole matrix's. `memory` is used throughout, and may be another encoder's before.
  RowEncoder(const PackMeta& meta, EncodedPack* memory);

  // The next steps: [rows, cols] at `weights`, whose rows lie `stride` apart; rows a multiple of
  // 64, and all columns, or 64 rows and some of them, a multiple of 16. OutOfRange where the side
  // buffer would get larger than the format allows.
  absl::Status Add(const uint16_t* weights, uint64_t stride, uint64_t rows, uint64_t cols);
  // What Add made; valid until the next one.
  absl::Span<const uint8_t> data() const { return memory_->data; }
  absl::Span<const uint8_t> side() const { return side_; }

  // Zeros before the first part of the side buffer.
  uint64_t SideHead() const;
  // Zeros after the last.
  uint64_t SideTail() const;
  // Of the side buffer so far, head and tail included.
  uint64_t side_bytes() const { return SideHead() + side_sum_ + SideTail(); }
  // All of `base`, after the last Add: 4 bytes a step.
  const std::vector<int32_t>& base() const { return base_; }

 private:
  const PackMeta meta_;
  EncodedPack* const memory_;
  absl::Span<const uint8_t> side_;
  uint64_t side_sum_ = 0;
  std::vector<int32_t> base_;
};

// The side buffer's bytes of a mma12 pack, by its histogram alone.
uint64_t Mma12SideBytes(const PackMeta& meta, const ExponentHistogram& histogram);

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_ROW_ENCODER_H_
