#include "packer/pack/row_encoder.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/format/testing/weights.h"

namespace glyd {
namespace {

// Parts of a matrix, one after the other, are what Encode makes of the whole.
TEST(RowEncoderTest, PartsAreTheWhole) {
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    for (const double wild : {0.0, 0.01, 0.5, 1.0}) {
      for (const uint64_t rows : {64, 192, 640}) {
        constexpr uint64_t kCols = 48;
        const std::vector<uint16_t> w = testing::Weights(rows * kCols, wild, rows);
        const auto whole = Encode(layout, rows, kCols, w.data());
        ASSERT_TRUE(whole.ok());
        EncodedPack memory;
        RowEncoder encoder(whole->meta, &memory);
        std::vector<uint8_t> data, side(encoder.SideHead());
        for (uint64_t row = 0, n = 64; row < rows; row += n, n = 128) {
          n = std::min(n, rows - row);
          ASSERT_TRUE(encoder.Add(&w[row * kCols], kCols, n, kCols).ok());
          data.insert(data.end(), encoder.data().begin(), encoder.data().end());
          side.insert(side.end(), encoder.side().begin(), encoder.side().end());
        }
        side.resize(side.size() + encoder.SideTail());
        EXPECT_EQ(side.size(), encoder.side_bytes());
        EXPECT_TRUE(data == whole->data);
        EXPECT_TRUE(side == whole->side);
        EXPECT_TRUE(encoder.base() == whole->base);
        if (layout == Layout::kMma12) {
          ExponentHistogram h;
          h.Add(w.data(), w.size());
          EXPECT_EQ(Mma12SideBytes(whole->meta, h), side.size());
        }
      }
    }
  }
}

// A row block cut by columns is what it is whole.
TEST(RowEncoderTest, ColumnsOfARowBlock) {
  constexpr uint64_t kRows = 128, kCols = 240;
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    const std::vector<uint16_t> w = testing::Weights(kRows * kCols, 0.2, 5);
    const auto whole = Encode(layout, kRows, kCols, w.data());
    ASSERT_TRUE(whole.ok());
    EncodedPack memory;
    RowEncoder encoder(whole->meta, &memory);
    std::vector<uint8_t> data, side(encoder.SideHead());
    for (uint64_t row = 0; row < kRows; row += 64)
      for (uint64_t col = 0, n = 16; col < kCols; col += n, n = 80) {
        n = std::min(n, kCols - col);
        ASSERT_TRUE(encoder.Add(&w[row * kCols + col], kCols, 64, n).ok());
        data.insert(data.end(), encoder.data().begin(), encoder.data().end());
        side.insert(side.end(), encoder.side().begin(), encoder.side().end());
      }
    side.resize(side.size() + encoder.SideTail());
    EXPECT_TRUE(data == whole->data);
    EXPECT_TRUE(side == whole->side);
    EXPECT_TRUE(encoder.base() == whole->base);
  }
}

}  // namespace
}  // namespace glyd
