#include "kernels/format/pack.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "kernels/format/internal/limits.h"
#include "kernels/host/kernels.h"

namespace glyd {
namespace {

constexpr uint64_t kInt32Limit = uint64_t{1} << 31;

std::string ShapeText(uint64_t rows, uint64_t cols) {
  return absl::StrCat("[", rows, ", ", cols, "]");
}

// The nine exponents that occur most, the smaller first where two occur alike.
std::array<uint32_t, 3> ChooseTiers(const std::array<uint64_t, 256>& counts) {
  std::array<uint32_t, 256> order;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  std::array<uint32_t, 3> tiers;
  for (int k = 0; k < 3; ++k)
    tiers[k] = 0xFF000000u | order[3 * k + 2] << 16 | order[3 * k + 1] << 8 | order[3 * k];
  return tiers;
}

// The smallest base of a window of 8 high-byte values that holds the most weights.
uint32_t ChooseBase(const std::array<uint64_t, 256>& counts) {
  uint32_t best = 0;
  uint64_t most = 0;
  for (uint32_t x0 = 0; x0 <= kMaxBase; ++x0) {
    const uint64_t in_window =
        std::accumulate(counts.begin() + 2 * x0, counts.begin() + 2 * (x0 + 8), uint64_t{0});
    if (in_window > most) best = x0, most = in_window;
  }
  return best;
}

}  // namespace

absl::string_view LayoutName(Layout layout) { return layout == Layout::kMma ? "mma" : "mma12"; }

absl::StatusOr<Layout> ParseLayout(absl::string_view name) {
  if (name == "mma") return Layout::kMma;
  if (name == "mma12") return Layout::kMma12;
  return absl::InvalidArgumentError(
      absl::StrCat("layout \"", Printable(name), "\" is not known: mma and mma12 are"));
}

PackView EncodedPack::view() const {
  return {.meta = meta,
          .data = data.data(),
          .data_bytes = data.size(),
          .side = side.data(),
          .side_bytes = side.size(),
          .base = base.data(),
          .base_count = base.size()};
}

absl::Status CheckShape(uint64_t rows, uint64_t cols) {
  if (rows == 0 || rows % kStepRows != 0)
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(rows, cols), ": ", rows,
                                                   " rows are no positive multiple of ",
                                                   kStepRows));
  if (cols == 0 || cols % kStepCols != 0)
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(rows, cols), ": ", cols,
                                                   " columns are no positive multiple of ",
                                                   kStepCols));
  uint64_t weights;
  if (!CheckedMul(rows, cols, &weights) || weights / kStepWeights >= kInt32Limit)
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(rows, cols), ": past the ",
                                                   kInt32Limit, " steps of ", kStepWeights,
                                                   " weights that a pack can hold"));
  return absl::OkStatus();
}

uint64_t DataBytes(const PackMeta& m) {
  return StepCount(m) * (m.layout == Layout::kMma ? kMmaStepBytes : kMma12StepBytes);
}

void ExponentHistogram::Add(const uint16_t* weights, uint64_t n) {
  ChosenKernels().histogram(weights, n, counts.data());
}

void ExponentHistogram::Merge(const ExponentHistogram& other) {
  for (size_t e = 0; e < counts.size(); ++e) counts[e] += other.counts[e];
}

PackMeta ChooseCodes(Layout layout, uint64_t rows, uint64_t cols, const ExponentHistogram& h) {
  PackMeta meta{.layout = layout, .rows = rows, .cols = cols};
  if (layout == Layout::kMma)
    meta.tiers = ChooseTiers(h.counts);
  else
    meta.hb = ChooseBase(h.counts);
  return meta;
}

namespace internal {

absl::Status CheckBlocksBytes(const PackMeta& meta, uint64_t bytes) {
  if (bytes < kInt32Limit) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("matrix ", ShapeText(meta.rows, meta.cols), ": glyd_blocks would have ", bytes,
                   " bytes or more, below ", kInt32Limit, " can be packed"));
}

absl::Status CheckExceptions(const PackMeta& meta, uint64_t count) {
  if (count < kInt32Limit) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("matrix ", ShapeText(meta.rows, meta.cols), ": ", count,
                                            " exceptions or more, below ", kInt32Limit,
                                            " can be packed"));
}

}  // namespace internal
}  // namespace glyd
