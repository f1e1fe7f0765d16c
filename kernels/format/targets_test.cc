#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/internal/fast.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

// Every target that this machine has against the reference.

namespace glyd {
namespace {

class TargetTest : public ::testing::TestWithParam<HostTarget> {
 protected:
  const HostKernels& kernels() { return KernelsFor(GetParam()); }

  // `meta`'s codes need not be those that suit the weights.
  void ExpectLikeReference(const PackMeta& meta, const std::vector<uint16_t>& w) {
    SCOPED_TRACE(absl::StrCat(LayoutName(meta.layout), " [", meta.rows, ", ", meta.cols, "]"));
    const EncodedPack want = *reference::Encode(meta, w.data());
    const absl::Status s = internal::EncodeWith(kernels(), meta, w.data(), meta.cols, &reused_);
    ASSERT_TRUE(s.ok()) << s;
    EXPECT_TRUE(reused_.base == want.base);
    EXPECT_TRUE(reused_.data == want.data);
    EXPECT_TRUE(reused_.side == want.side);
    EXPECT_TRUE(CheckPack(want.view()).ok()) << CheckPack(want.view());

    std::vector<uint16_t> decoded(w.size() + 1, 0x5555);
    internal::DecodeRowsWith(kernels(), want.view(), 0, meta.rows, decoded.data());
    EXPECT_EQ(decoded.back(), 0x5555);
    decoded.pop_back();
    EXPECT_TRUE(decoded == w);

    // Some steps of the last row block, into rows further apart.
    const uint64_t steps = meta.cols / kStepCols, first = steps / 3, count = steps - first;
    const uint64_t stride = count * kStepCols + 5, row0 = meta.rows - kStepRows;
    std::vector<uint16_t> piece(kStepRows * stride, 0x5555), plain = piece;
    const uint64_t step = row0 / kStepRows * steps + first;
    internal::DecodeStepsWith(kernels(), want.view(), step, count, piece.data(), stride);
    reference::DecodeSteps(want.view(), step, count, plain.data(), stride);
    EXPECT_TRUE(piece == plain);
  }

  void ExpectLikeReference(uint64_t rows, uint64_t cols, const std::vector<uint16_t>& w) {
    ExponentHistogram h;
    kernels().histogram(w.data(), w.size(), h.counts.data());
    std::array<uint64_t, 256> plain = {};
    reference::AddToHistogram(w.data(), w.size(), plain.data());
    EXPECT_EQ(h.counts, plain);
    for (const Layout layout : {Layout::kMma, Layout::kMma12})
      ExpectLikeReference(ChooseCodes(layout, rows, cols, h), w);
  }

  EncodedPack reused_;
};

TEST_P(TargetTest, EveryPattern) {
  const std::vector<uint16_t> w = testing::EveryPattern();
  for (const uint64_t rows : {64, 256, 4096}) ExpectLikeReference(rows, w.size() / rows, w);
}

TEST_P(TargetTest, EveryBase) {
  const std::vector<uint16_t> w = testing::EveryPattern();
  for (uint32_t hb = 0; hb <= kMaxBase; hb += 15)
    ExpectLikeReference({.layout = Layout::kMma12, .rows = 256, .cols = 256, .hb = hb}, w);
}

// All weights of one rank, for each; and each alone among others: lists of escapes of every length.
TEST_P(TargetTest, LonelyRanks) {
  const PackMeta meta = {.layout = Layout::kMma,
                         .rows = 64,
                         .cols = 32,
                         .tiers = {0xFF030201, 0xFF060504, 0xFF090807}};
  for (const uint16_t common : {1, 4, 7, 10}) {
    for (const uint16_t rare : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}) {
      testing::Random random(common * 256 + rare);
      for (const uint64_t among : {1, 2, 16, 64, 900}) {
        std::vector<uint16_t> w(64 * 32);
        for (uint16_t& v : w) {
          const uint64_t r = random.Next();
          v = static_cast<uint16_t>((r & 0x807F) | (random.Below(among) == 0 ? rare : common) << 7);
        }
        ExpectLikeReference(meta, w);
      }
    }
  }
}

TEST_P(TargetTest, Random) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  testing::Random random(seed);
  for (int n = 0; n < 60; ++n) {
    const uint64_t rows = 64 * (1 + random.Below(3)), cols = 16 * (1 + random.Below(40));
    const double wild = n % 4 == 0   ? 0
                        : n % 4 == 1 ? 1
                                     : static_cast<double>(random.Below(1000)) / 1e3;
    ExpectLikeReference(rows, cols, testing::Weights(rows * cols, wild, random.Next()));
    std::vector<uint16_t> bits(rows * cols);
    for (uint16_t& v : bits) v = static_cast<uint16_t>(random.Next());
    ExpectLikeReference(rows, cols, bits);
  }
}

TEST_P(TargetTest, HistogramOfAnyLength) {
  const std::vector<uint16_t> w = testing::Weights(5000, 0.3, 77);
  for (uint64_t from = 0; from < 3; ++from)
    for (uint64_t n = 0; n < 2000; n += n < 200 ? 1 : 97) {
      std::array<uint64_t, 256> got = {1, 2, 3}, want = got;
      kernels().histogram(w.data() + from, n, got.data());
      reference::AddToHistogram(w.data() + from, n, want.data());
      EXPECT_EQ(got, want) << n;
    }
}

TEST_P(TargetTest, CountsEscapes) {
  testing::Random random(8);
  std::vector<uint8_t> digits(100);
  for (uint8_t& b : digits) b = static_cast<uint8_t>(random.Next());
  uint64_t want = 0;
  for (uint64_t n = 0; n <= digits.size(); ++n) {
    const std::vector<uint8_t> exact(digits.begin(), digits.begin() + n);
    EXPECT_EQ(kernels().count_escapes(exact.data(), n), want);
    if (n < digits.size())
      for (int k = 0; k < 4; ++k) want += (digits[n] >> 2 * k & 3) == 3;
  }
}

// Long ones, where a target may look at a sample first: what the sample shows, and what it does
// not.
TEST_P(TargetTest, LongHistograms) {
  testing::Random random(5);
  std::vector<std::vector<uint16_t>> inputs;
  for (const double wild : {0.0, 0.0005, 0.01, 0.3, 1.0})
    inputs.push_back(testing::Weights(100003, wild, 1));
  for (const int first : {0, 1, 100, 223, 224, 225, 254}) {
    std::vector<uint16_t> w(70000);
    for (uint16_t& v : w) {
      const uint64_t r = random.Next();
      v = static_cast<uint16_t>((r & 0x807F) | ((first + (r >> 20) % 32) & 0xFF) << 7);
    }
    inputs.push_back(w);
    for (size_t i = 30000; i < 60000; ++i) w[i] = static_cast<uint16_t>(random.Next());
    inputs.push_back(w);
    for (size_t i = 0; i < w.size(); ++i)
      if (i % 16 != 0) w[i] = static_cast<uint16_t>(random.Next());
    inputs.push_back(w);
  }
  for (const std::vector<uint16_t>& w : inputs) {
    std::array<uint64_t, 256> got = {}, want = {};
    kernels().histogram(w.data(), w.size(), got.data());
    reference::AddToHistogram(w.data(), w.size(), want.data());
    EXPECT_EQ(got, want);
  }
}

// A hostile pack that passes the checks decodes alike everywhere, whatever its codes.
TEST_P(TargetTest, DamagedPacksDecodeAlike) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  testing::Random random(seed);
  const uint64_t rows = 64, cols = 48;
  int compared = 0;
  for (int n = 0; n < 600; ++n) {
    const Layout layout = n % 2 ? Layout::kMma : Layout::kMma12;
    PackMeta meta = {.layout = layout, .rows = rows, .cols = cols};
    meta.hb = static_cast<uint32_t>(random.Below(kMaxBase + 1));
    const auto first = static_cast<uint32_t>(random.Below(256));
    for (uint32_t rank = 0; rank < 9; ++rank)
      meta.tiers[rank / 3] |= ((first + 31 * rank) & 0xFF) << 8 * (rank % 3);
    for (uint32_t& tier : meta.tiers) tier |= 0xFF000000;
    EncodedPack pack = *reference::Encode(meta, testing::Weights(rows * cols, 0.3, n).data());
    for (int k = 0; k < 4; ++k) pack.data[random.Below(pack.data.size())] ^= 1 << random.Below(8);
    if (!CheckPack(pack.view()).ok()) continue;
    ++compared;
    std::vector<uint16_t> want(rows * cols), got(rows * cols);
    reference::DecodeRows(pack.view(), 0, rows, want.data());
    internal::DecodeRowsWith(kernels(), pack.view(), 0, rows, got.data());
    EXPECT_TRUE(got == want);
    // What passes is what an encoder makes of the weights, and nothing else.
    const auto again = reference::Encode(meta, got.data());
    EXPECT_TRUE(again->data == pack.data && again->side == pack.side && again->base == pack.base);
  }
  EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Targets, TargetTest, ::testing::ValuesIn(AvailableTargets()),
                         [](const auto& info) { return std::string(HostTargetName(info.param)); });

}  // namespace
}  // namespace glyd
