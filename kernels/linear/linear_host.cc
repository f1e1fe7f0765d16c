#include <fenv.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "kernels/linear/internal/tile.h"
#include "kernels/linear/linear.h"

namespace glyd {
namespace {

using internal::kSums;
using internal::kTileCols;
using internal::kTileSteps;

// Rows of x a pass over W takes: their sums of a row block are 128 KB, which a second-level cache
// holds.
constexpr uint64_t kPassRows = 64;

// The default floating-point modes for a scope: a caller that flushes subnormals or rounds
// otherwise must not change the bits.
class DefaultFloatModes {
 public:
  DefaultFloatModes() {
    fegetenv(&saved_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatModes() { fesetenv(&saved_); }

 private:
  fenv_t saved_;
};

uint16_t RoundToBf16(float v) {
  if (std::isnan(v)) return 0x7FC0;
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float Widen(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }

// One pass: `m` rows of x, at most kPassRows, by all of W.
struct Pass {
  const LinearArgs& args;
  const float* x;  // [m, K], columns split
  uint64_t row0, m;
};

void MultiplyRowBlock(const Pass& pass, uint64_t rb, float* sums) {
  const PackView& w = pass.args.pack;
  const uint64_t cols = w.meta.cols, steps = cols / kStepCols;
  alignas(64) uint16_t tile[kStepRows * kTileCols];
  std::fill_n(sums, pass.m * kStepRows * kSums, 0.0f);
  for (uint64_t s = 0; s < steps; s += kTileSteps) {
    const int n = static_cast<int>(std::min<uint64_t>(kTileSteps, steps - s));
    DecodeSteps(w, rb * steps + s, n, tile, n * kStepCols);
    internal::AddTile(tile, n, pass.x + s * kStepCols, cols, pass.m, sums);
  }
  const uint16_t* bias = pass.args.bias;
  for (uint64_t i = 0; i < pass.m; ++i) {
    uint16_t* y = pass.args.y + (pass.row0 + i) * w.meta.rows + rb * kStepRows;
    for (int r = 0; r < kStepRows; ++r) {
      const float* p = sums + (i * kStepRows + r) * kSums;
      float sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
      if (bias != nullptr) sum += Widen(bias[rb * kStepRows + r]);
      y[r] = RoundToBf16(sum);
    }
  }
}

void RunPass(const Pass& pass, int threads) {
  const uint64_t row_blocks = pass.args.pack.meta.rows / kStepRows;
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    const DefaultFloatModes modes;
    std::vector<float> sums(pass.m * kStepRows * kSums);
    for (uint64_t rb; (rb = next.fetch_add(1, std::memory_order_relaxed)) < row_blocks;)
      MultiplyRowBlock(pass, rb, sums.data());
  };
  std::vector<std::thread> helpers;
  const uint64_t wanted = std::min<uint64_t>(std::max(threads, 1), row_blocks) - 1;
  for (uint64_t t = 0; t < wanted; ++t) {
    // Where no more threads are to be had, those there are do the work.
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;
    }
  }
  work();
  for (std::thread& t : helpers) t.join();
}

}  // namespace

absl::Status LinearOnHost(const LinearArgs& args, int threads) {
  if (args.m == 0) return absl::OkStatus();
  const uint64_t rows = args.pack.meta.rows, cols = args.pack.meta.cols;
  if (args.x == nullptr || args.y == nullptr || args.pack.data == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("linear: ",
                                                   args.x == nullptr   ? "x"
                                                   : args.y == nullptr ? "y"
                                                                       : "the pack",
                                                   " is null, with M ", args.m));
  uint64_t x_bytes, y_bytes;
  if (!CheckedMul(args.m, 2 * cols, &x_bytes) || !CheckedMul(args.m, 2 * rows, &y_bytes))
    return absl::InvalidArgumentError(
        absl::StrCat("linear: M ", args.m, " by [", rows, ", ", cols, "] is more than 2^64 bytes"));
  std::vector<float> x(std::min(args.m, kPassRows) * cols);
  for (uint64_t row0 = 0; row0 < args.m; row0 += kPassRows) {
    const Pass pass{args, x.data(), row0, std::min(kPassRows, args.m - row0)};
    internal::SplitColumns(args.x + row0 * cols, pass.m * cols, x.data());
    RunPass(pass, threads);
  }
  return absl::OkStatus();
}

}  // namespace glyd
