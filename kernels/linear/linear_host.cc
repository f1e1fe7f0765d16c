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
#include "kernels/host/kernels.h"
#include "kernels/linear/internal/with.h"
#include "kernels/linear/linear.h"

namespace glyd {
namespace {

// Rows of x a pass over W takes: their sums of a row block are 128 KB, which a second-level cache
// holds.
constexpr uint64_t kPassRows = 64;

// Multiply-adds that are worth a thread more: starting one costs about 50 us, as long as half of
// these take with mma12.
constexpr uint64_t kThreadProducts = 1 << 20;

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
  const HostKernels& kernels;
  const LinearArgs& args;
  const StepCodes codes;
  const float* x;  // [m, K] with each 16 columns split, the even ones first
  uint64_t row0, m;
};

void DecodePanel(const Pass& pass, uint64_t step, uint64_t steps, float* panel) {
  const PackView& w = pass.args.pack;
  if (w.meta.layout == Layout::kMma)
    pass.kernels.panel_mma(pass.codes, w.data + step * kMmaStepBytes, w.side, w.base + step, steps,
                           panel);
  else
    pass.kernels.panel_mma12(pass.codes, w.data + step * kMma12StepBytes,
                             reinterpret_cast<const uint32_t*>(w.side), w.base + step, steps,
                             panel);
}

void WriteRows(const Pass& pass, uint64_t rb, const float* sums) {
  const uint64_t rows = pass.args.pack.meta.rows;
  for (uint64_t i = 0; i < pass.m; ++i, sums += kSumFloats) {
    uint16_t* y = pass.args.y + (pass.row0 + i) * rows + rb * kStepRows;
    for (int g = 0; g < 8; ++g)
      for (int pair = 0; pair < kPanelPairs; ++pair)
        for (int row = 0; row < 2; ++row) {
          const float* p = sums + SumsAt(g, pair) + 8 * row;
          const int r = 8 * kPanelRows[pair][row] + g;
          float sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
          if (pass.args.bias != nullptr) sum += Widen(pass.args.bias[rb * kStepRows + r]);
          y[r] = RoundToBf16(sum);
        }
  }
}

void MultiplyRowBlock(const Pass& pass, uint64_t rb, float* sums) {
  const uint64_t cols = pass.args.pack.meta.cols, steps = cols / kStepCols;
  if (pass.m <= kFusedRows && pass.args.pack.meta.layout == Layout::kMma12 &&
      pass.kernels.fused_mma12 != nullptr) {
    const PackView& w = pass.args.pack;
    const uint64_t step = rb * steps;
    pass.kernels.fused_mma12(pass.codes, w.data + step * kMma12StepBytes,
                             reinterpret_cast<const uint32_t*>(w.side), w.base + step, steps,
                             pass.x, cols, pass.m, sums);
    return WriteRows(pass, rb, sums);
  }
  alignas(64) float panel[kPanelFloats];
  std::fill_n(sums, pass.m * kSumFloats, 0.0f);
  for (uint64_t s = 0; s < steps; s += kPanelSteps) {
    const uint64_t n = std::min<uint64_t>(kPanelSteps, steps - s);
    DecodePanel(pass, rb * steps + s, n, panel);
    pass.kernels.multiply_panel(panel, n, pass.x + s * kStepCols, cols, pass.m, sums);
  }
  WriteRows(pass, rb, sums);
}

void RunPass(const Pass& pass, int threads) {
  const uint64_t row_blocks = pass.args.pack.meta.rows / kStepRows;
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    const DefaultFloatModes modes;
    std::vector<float> sums(pass.m * kSumFloats);
    for (uint64_t rb; (rb = next.fetch_add(1, std::memory_order_relaxed)) < row_blocks;)
      MultiplyRowBlock(pass, rb, sums.data());
  };
  std::vector<std::thread> helpers;
  const PackMeta& w = pass.args.pack.meta;
  const uint64_t worth = 1 + w.rows * w.cols * pass.m / kThreadProducts;
  const uint64_t wanted =
      std::min<uint64_t>({static_cast<uint64_t>(std::max(threads, 1)), row_blocks, worth}) - 1;
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

void SplitColumns(const uint16_t* x, uint64_t n, float* out) {
  for (uint64_t c = 0; c < n; c += kStepCols)
    for (int p = 0; p < kSumsPerRow; ++p) {
      out[c + p] = Widen(x[c + 2 * p]);
      out[c + kSumsPerRow + p] = Widen(x[c + 2 * p + 1]);
    }
}

}  // namespace

namespace internal {

absl::Status LinearWith(const HostKernels& kernels, const LinearArgs& args, int threads) {
  if (args.m == 0) return absl::OkStatus();
  const PackMeta& meta = args.pack.meta;
  if (args.x == nullptr || args.y == nullptr || args.pack.data == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("linear: ",
                                                   args.x == nullptr   ? "x"
                                                   : args.y == nullptr ? "y"
                                                                       : "the pack",
                                                   " is null, with M ", args.m));
  uint64_t x_bytes, y_bytes;
  if (!CheckedMul(args.m, 2 * meta.cols, &x_bytes) || !CheckedMul(args.m, 2 * meta.rows, &y_bytes))
    return absl::InvalidArgumentError(absl::StrCat("linear: M ", args.m, " by [", meta.rows, ", ",
                                                   meta.cols, "] is more than 2^64 bytes"));
  const StepCodes codes =
      meta.layout == Layout::kMma ? StepCodes{.tiers = meta.tiers} : StepCodes::ForMma12(meta.hb);
  std::vector<float> x(std::min(args.m, kPassRows) * meta.cols);
  for (uint64_t row0 = 0; row0 < args.m; row0 += kPassRows) {
    const Pass pass{kernels, args, codes, x.data(), row0, std::min(kPassRows, args.m - row0)};
    SplitColumns(args.x + row0 * meta.cols, pass.m * meta.cols, x.data());
    RunPass(pass, threads);
  }
  return absl::OkStatus();
}

}  // namespace internal

absl::Status LinearOnHost(const LinearArgs& args, int threads) {
  return internal::LinearWith(ChosenKernels(), args, threads);
}

}  // namespace glyd
