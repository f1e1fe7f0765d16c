#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// Encodes and checks; decodes as a whole and row block by row block; expects every bit back.
void ExpectRoundTrip(uint64_t rows, uint64_t cols, const std::vector<uint16_t>& w) {
  ASSERT_EQ(w.size(), rows * cols);
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    SCOPED_TRACE(absl::StrCat(LayoutName(layout), " [", rows, ", ", cols, "]"));
    const auto pack = Encode(layout, rows, cols, w.data());
    ASSERT_TRUE(pack.ok()) << pack.status();
    const PackView view = pack->view();
    EXPECT_TRUE(CheckPack(view).ok()) << CheckPack(view);
    std::vector<uint16_t> all(w.size());
    DecodeRows(view, 0, rows, all.data());
    EXPECT_TRUE(all == w);
    std::vector<uint16_t> block(kStepRows * cols);
    for (uint64_t row = 0; row < rows; row += kStepRows) {
      DecodeRows(view, row, kStepRows, block.data());
      EXPECT_EQ(std::memcmp(block.data(), w.data() + row * cols, block.size() * 2), 0) << row;
    }
  }
}

TEST(StepTest, PlacesCoverAStepOnce) {
  std::vector<int> seen(kStepWeights);
  for (int q = 0; q < kStepWeights; ++q) ++seen[StepRow(q) * kStepCols + StepCol(q)];
  EXPECT_THAT(seen, ::testing::Each(1));
}

TEST(LayoutTest, Names) {
  for (const Layout layout : {Layout::kMma, Layout::kMma12})
    EXPECT_EQ(*ParseLayout(LayoutName(layout)), layout);
  EXPECT_THAT(std::string(ParseLayout("mma13\n").status().message()), HasSubstr("\"mma13\\n\""));
}

TEST(ShapeTest, NamesWhatDoesNotFit) {
  EXPECT_TRUE(CheckShape(64, 16).ok());
  EXPECT_TRUE(CheckShape(64, (uint64_t{1} << 35) - 16).ok());
  const struct {
    uint64_t rows, cols;
    const char* message;
  } bad[] = {
      {0, 16, "0 rows"},
      {63, 16, "63 rows"},
      {64, 0, "0 columns"},
      {64, 24, "24 columns"},
      {64, uint64_t{1} << 35, "2147483648 steps"},
      {uint64_t{1} << 63, 32, "2147483648 steps"},
      {~uint64_t{63}, ~uint64_t{15}, "2147483648 steps"},
  };
  for (const auto& b : bad) {
    const absl::Status s = CheckShape(b.rows, b.cols);
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()), HasSubstr(b.message));
    EXPECT_EQ(Encode(Layout::kMma, b.rows, b.cols, nullptr).status(), s);
  }
}

TEST(ChooseCodesTest, TiesGoToTheSmaller) {
  ExponentHistogram h;
  h.counts[200] = 5, h.counts[9] = 5, h.counts[3] = 7;
  const PackMeta mma = ChooseCodes(Layout::kMma, 64, 16, h);
  EXPECT_EQ(mma.tiers, (std::array<uint32_t, 3>{0xFFC80903, 0xFF020100, 0xFF060504}));
  // 9 >> 1 is 4 and 3 >> 1 is 1: the first window that has both starts at 0.
  EXPECT_EQ(ChooseCodes(Layout::kMma12, 64, 16, h).hb, 0u);
  h.counts[255] = 100;
  EXPECT_EQ(ChooseCodes(Layout::kMma12, 64, 16, h).hb, 120u);
  EXPECT_EQ(ChooseCodes(Layout::kMma12, 64, 16, ExponentHistogram{}).hb, 0u);
}

TEST(HistogramTest, MergesParts) {
  const std::vector<uint16_t> w = testing::Weights(100003, 0.3, 7);
  ExponentHistogram whole, a, b;
  whole.Add(w.data(), w.size());
  a.Add(w.data(), 1001);
  b.Add(w.data() + 1001, w.size() - 1001);
  a.Merge(b);
  EXPECT_EQ(a.counts, whole.counts);
  std::array<uint64_t, 256> plain = {};
  for (const uint16_t v : w) ++plain[v >> 7 & 0xFF];
  EXPECT_EQ(whole.counts, plain);
}

TEST(RoundTripTest, EveryPattern) {
  ExpectRoundTrip(256, 256, testing::EveryPattern());
  std::vector<uint16_t> w = testing::EveryPattern();
  ExpectRoundTrip(64, 1024, w);
  ExpectRoundTrip(4096, 16, w);
}

TEST(RoundTripTest, Constant) {
  for (const uint16_t v : {0x0000, 0x8000, 0x7F80, 0xFFFF, 0x0001, 0x3F80})
    ExpectRoundTrip(128, 48, std::vector<uint16_t>(128 * 48, v));
}

TEST(RoundTripTest, NineExponents) {
  testing::Random random(9);
  for (const int exponents : {3, 4, 6, 7, 9, 10}) {
    std::vector<uint16_t> w(64 * 80);
    for (uint16_t& v : w) {
      const uint64_t r = random.Next();
      v = static_cast<uint16_t>((r & 0x807F) | (100 + 13 * (r >> 20) % exponents) << 7);
    }
    ExpectRoundTrip(64, 80, w);
  }
}

TEST(RoundTripTest, Random) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  testing::Random random(seed);
  for (int n = 0; n < 40; ++n) {
    const uint64_t rows = 64 * (1 + random.Below(3)), cols = 16 * (1 + random.Below(20));
    const double wild = n % 4 == 0   ? 0.0
                        : n % 4 == 1 ? 1.0
                                     : static_cast<double>(random.Below(1000)) / 1e3;
    ExpectRoundTrip(rows, cols, testing::Weights(rows * cols, wild, random.Next()));
    std::vector<uint16_t> bits(rows * cols);
    for (uint16_t& v : bits) v = static_cast<uint16_t>(random.Next());
    ExpectRoundTrip(rows, cols, bits);
  }
}

}  // namespace
}  // namespace glyd
