#ifndef GLYD_KERNELS_FORMAT_PACK_H_
#define GLYD_KERNELS_FORMAT_PACK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/format/step.h"

namespace glyd {

absl::string_view LayoutName(Layout layout);  // "mma", "mma12"
absl::StatusOr<Layout> ParseLayout(absl::string_view name);

inline constexpr uint32_t kMaxBase =
    120;  // of hb: the last window of 8 of the 128 high-byte values

// What glyd.json says of a pack, less its name and tensors.
struct PackMeta {
  Layout layout = Layout::kMma;
  uint64_t rows = 0, cols = 0;  // O and K of W [O, K]
  std::array<uint32_t, 3> tiers =
      {};           // mma: exponents of rank 3k, 3k+1, 3k+2 in bytes 0, 1, 2; 0xFF in byte 3
  uint32_t hb = 0;  // mma12: the base of the window of 8 high-byte values, 0-120
};

// A packed matrix in CPU memory, not owned. `side` is `blocks` (mma) or `exc` (mma12), `base` is
// `block_base` or `exc_base`; both kinds of `exc` and base are int32 and are 4-byte aligned here.
struct PackView {
  PackMeta meta;
  const uint8_t* data = nullptr;
  uint64_t data_bytes = 0;
  const uint8_t* side = nullptr;
  uint64_t side_bytes = 0;
  const int32_t* base = nullptr;
  uint64_t base_count = 0;  // elements; steps + 1 in a good pack
};

// A packed matrix that owns its buffers.
struct EncodedPack {
  PackMeta meta;
  std::vector<uint8_t> data, side;
  std::vector<int32_t> base;
  PackView view() const;
};

// O a positive multiple of 64, K of 16, O*K within what a pack can hold (below 2^31 warp steps, and
// every size in bytes below 2^63). InvalidArgument names the shape otherwise.
absl::Status CheckShape(uint64_t rows, uint64_t cols);
inline uint64_t StepCount(const PackMeta& m) { return m.rows / kStepRows * (m.cols / kStepCols); }
// Bytes of `data`.
uint64_t DataBytes(const PackMeta& m);

// Counts of the 256 exponents of bf16 weights. One thread at a time; Merge joins those of several.
struct ExponentHistogram {
  std::array<uint64_t, 256> counts = {};
  void Add(const uint16_t* weights, uint64_t n);
  void Merge(const ExponentHistogram& other);
};

// The codes (tiers or hb) that the format prescribes for a matrix of these exponents.
PackMeta ChooseCodes(Layout layout, uint64_t rows, uint64_t cols, const ExponentHistogram& h);

// Packs W (rows * cols weights, row-major), whose histogram gave `meta`. InvalidArgument for a
// shape that does not pack; OutOfRange where `blocks` would reach 2^31 bytes. The bytes are those
// of glyd 0.25.0.
absl::StatusOr<EncodedPack> Encode(const PackMeta& meta, const uint16_t* weights);
// Encode into a pack whose buffers may be those of an earlier matrix: no new pages, which cost as
// much as packing.
absl::Status EncodeInto(const PackMeta& meta, const uint16_t* weights, EncodedPack* out);
// The same of rows that lie `stride` weights apart: a part of a larger matrix's columns.
absl::Status EncodeInto(const PackMeta& meta, const uint16_t* weights, uint64_t stride,
                        EncodedPack* out);
// Histogram, codes and Encode in one.
absl::StatusOr<EncodedPack> Encode(Layout layout, uint64_t rows, uint64_t cols,
                                   const uint16_t* weights);

// Everything that a reader holds to before it decodes (docs/format.md, "What a reader holds to"):
// sizes, bases that rise from their first value, tiered blocks as long as their digits say, hb,
// exceptions that are some and in order, zeros where nothing is coded. `data` may be null for
// mma12: then the codes, of which only those of exceptions can be wrong, are not looked at.
// DataLoss says which buffer
// ("glyd_data", "glyd_blocks", "glyd_block_base", "glyd_exc", "glyd_exc_base", "hb", "shape"),
// where, and both numbers. Reads only within the view's sizes, whatever they are.
absl::Status CheckPack(const PackView& pack);

// Rows [row0, row0 + rows) of W, row-major, into out [rows, K]. row0 and rows are multiples of 64
// within W. The pack has passed CheckPack: with any other the result is undefined. Thread-safe.
void DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows, uint16_t* out);

// Steps [step, step + count), which lie in one row block: 64 rows of 16 * count columns, row r of
// them at out + r * stride. For work that goes through a matrix in pieces small enough for a cache.
// As DecodeRows else.
void DecodeSteps(const PackView& pack, uint64_t step, uint64_t count, uint16_t* out,
                 uint64_t stride);

// The plain implementations, in the order of the format document, that all faster ones are tested
// against.
namespace reference {
void AddToHistogram(const uint16_t* weights, uint64_t n, uint64_t counts[256]);
absl::StatusOr<EncodedPack> Encode(const PackMeta& meta, const uint16_t* weights);
void DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows, uint16_t* out);
void DecodeSteps(const PackView& pack, uint64_t step, uint64_t count, uint16_t* out,
                 uint64_t stride);
}  // namespace reference

}  // namespace glyd

#endif  // GLYD_KERNELS_FORMAT_PACK_H_
