#include "kernels/linear/linear.h"

#include <fenv.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/testing/weights.h"
#include "kernels/linear/internal/with.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

float Widen(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }

// Made-up activations around 1.
std::vector<uint16_t> Activations(size_t n, uint64_t seed) {
  testing::Random random(seed);
  std::vector<uint16_t> x(n);
  for (uint16_t& v : x) {
    const uint64_t r = random.Next();
    v = static_cast<uint16_t>((r & 0x8000) | (120 + (r >> 20) % 9) << 7 | (r >> 40 & 0x7F));
  }
  return x;
}

std::vector<uint16_t> Multiply(const HostKernels& kernels, const EncodedPack& pack,
                               const std::vector<uint16_t>& x, int threads,
                               const uint16_t* bias = nullptr) {
  const uint64_t m = x.size() / pack.meta.cols;
  std::vector<uint16_t> y(m * pack.meta.rows, 0x5555);
  const absl::Status s = internal::LinearWith(
      kernels, {.pack = pack.view(), .x = x.data(), .m = m, .bias = bias, .y = y.data()}, threads);
  EXPECT_TRUE(s.ok()) << s;
  return y;
}

// The arithmetic that the header promises, one weight at a time.
std::vector<uint16_t> Promised(uint64_t rows, uint64_t cols, const std::vector<uint16_t>& w,
                               const std::vector<uint16_t>& x, const uint16_t* bias) {
  std::vector<uint16_t> y;
  for (uint64_t i = 0; i < x.size() / cols; ++i)
    for (uint64_t o = 0; o < rows; ++o) {
      volatile float p[8] = {};
      for (uint64_t k = 0; k < cols; ++k) {
        volatile float& sum = p[k % 16 / 2];
        sum = std::fma(Widen(w[o * cols + k]), Widen(x[i * cols + k]), sum);
      }
      float s = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
      if (bias != nullptr) s += Widen(bias[o]);
      uint32_t bits = std::bit_cast<uint32_t>(s);
      if (std::isnan(s))
        bits = 0x7FC00000;
      else
        bits += 0x7FFF + (bits >> 16 & 1);
      y.push_back(static_cast<uint16_t>(bits >> 16));
    }
  return y;
}

class LinearOnHostTest : public ::testing::TestWithParam<HostTarget> {
 protected:
  const HostKernels& kernels() { return KernelsFor(GetParam()); }
};

TEST_P(LinearOnHostTest, CloseToDoublePrecision) {
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    const uint64_t rows = 128, cols = 1040, m = 3;
    const std::vector<uint16_t> w = testing::Weights(rows * cols, 0, 11);
    const std::vector<uint16_t> x = Activations(m * cols, 5), bias = Activations(rows, 6);
    const EncodedPack pack = *Encode(layout, rows, cols, w.data());
    const std::vector<uint16_t> y = Multiply(kernels(), pack, x, 2, bias.data());
    double error = 0, size = 0;
    for (uint64_t i = 0; i < m; ++i)
      for (uint64_t o = 0; o < rows; ++o) {
        double sum = Widen(bias[o]);
        for (uint64_t k = 0; k < cols; ++k)
          sum += double{Widen(w[o * cols + k])} * Widen(x[i * cols + k]);
        error += std::pow(Widen(y[i * rows + o]) - sum, 2), size += sum * sum;
      }
    EXPECT_LT(std::sqrt(error / size), 3e-3);
  }
}

TEST_P(LinearOnHostTest, BitsAreThoseOfThePromisedArithmetic) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  testing::Random random(seed);
  for (int n = 0; n < 24; ++n) {
    const uint64_t rows = 64 * (1 + random.Below(3)), cols = 16 * (1 + random.Below(40));
    const uint64_t m = n % 6 == 0 ? 65 + random.Below(10) : 1 + random.Below(9);
    const double wild = n % 3 == 0 ? 0 : n % 3 == 1 ? 0.01 : 1;
    const std::vector<uint16_t> w = testing::Weights(rows * cols, wild, random.Next());
    const std::vector<uint16_t> x = n % 4 == 3 ? testing::Weights(m * cols, wild, random.Next())
                                               : Activations(m * cols, random.Next());
    const std::vector<uint16_t> bias = Activations(rows, random.Next());
    const uint16_t* b = n % 2 ? bias.data() : nullptr;
    const EncodedPack pack = *Encode(n % 2 ? Layout::kMma : Layout::kMma12, rows, cols, w.data());
    const std::vector<uint16_t> want = Promised(rows, cols, w, x, b);
    for (const int threads : {1, 2, 3, 50})
      EXPECT_TRUE(Multiply(kernels(), pack, x, threads, b) == want);
  }
}

// Infinities, NaNs, subnormals, products that overflow and ones that vanish.
TEST_P(LinearOnHostTest, EveryPattern) {
  const std::vector<uint16_t> w = testing::EveryPattern();
  std::vector<uint16_t> x;
  for (const uint16_t v : {0x3F80, 0x0000, 0x8000, 0x7F80, 0x7F7F, 0x0001, 0x7FC1, 0xBF80})
    x.insert(x.end(), 256, v);
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    const EncodedPack pack = *Encode(layout, 256, 256, w.data());
    EXPECT_TRUE(Multiply(kernels(), pack, x, 2) == Promised(256, 256, w, x, nullptr));
  }
}

TEST_P(LinearOnHostTest, ARowAloneIsTheRowInABatch) {
  const uint64_t rows = 64, cols = 528, m = 130;
  const EncodedPack pack =
      *Encode(Layout::kMma12, rows, cols, testing::Weights(rows * cols, 0.01, 2).data());
  const std::vector<uint16_t> x = Activations(m * cols, 3);
  const std::vector<uint16_t> y = Multiply(kernels(), pack, x, 2);
  for (const uint64_t i : {0, 1, 63, 64, 129}) {
    const std::vector<uint16_t> alone =
        Multiply(kernels(), pack, {x.begin() + i * cols, x.begin() + (i + 1) * cols}, 1);
    EXPECT_EQ(std::memcmp(alone.data(), y.data() + i * rows, rows * 2), 0) << i;
  }
}

// Every number of rows has its own grouping of them, and a run of steps its own end.
TEST_P(LinearOnHostTest, BitsAreThePromisedOnesForEveryM) {
  for (const uint64_t cols : {16, 112, 128, 144, 528}) {
    const std::vector<uint16_t> w = testing::Weights(128 * cols, 0.02, cols);
    const EncodedPack pack = *Encode(Layout::kMma12, 128, cols, w.data());
    for (uint64_t m = 1; m <= 17; ++m) {
      const std::vector<uint16_t> x = Activations(m * cols, m);
      EXPECT_TRUE(Multiply(kernels(), pack, x, 2) == Promised(128, cols, w, x, nullptr))
          << cols << " columns, M " << m;
    }
  }
}

TEST_P(LinearOnHostTest, CallersFloatModesDoNotMatter) {
  const EncodedPack pack =
      *Encode(Layout::kMma12, 64, 256, testing::Weights(64 * 256, 0.5, 8).data());
  const std::vector<uint16_t> x = Activations(256, 9);
  const std::vector<uint16_t> want = Multiply(kernels(), pack, x, 1);
  fesetround(FE_UPWARD);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // subnormals as zeros
#endif
  const std::vector<uint16_t> got = Multiply(kernels(), pack, x, 1);
  EXPECT_EQ(fegetround(), FE_UPWARD);
  fesetenv(FE_DFL_ENV);
  EXPECT_TRUE(got == want);
}

TEST(LinearTest, RefusesNull) {
  const EncodedPack pack = *Encode(Layout::kMma, 64, 16, testing::Weights(1024, 0, 1).data());
  uint16_t y[64];
  EXPECT_TRUE(LinearOnHost({.pack = pack.view()}, 1).ok());
  const absl::Status s = LinearOnHost({.pack = pack.view(), .m = 1, .y = y}, 1);
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(s.message()), HasSubstr("x is null"));
  uint16_t x[16] = {};
  EXPECT_THAT(
      std::string(
          LinearOnHost({.pack = pack.view(), .x = x, .m = ~uint64_t{0}, .y = y}, 1).message()),
      HasSubstr("18446744073709551615"));
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearOnHostTest, ::testing::ValuesIn(AvailableTargets()),
                         [](const auto& info) { return std::string(HostTargetName(info.param)); });

}  // namespace
}  // namespace glyd
