#include <gtest/gtest.h>

#include "kernels/cuda/testing.h"
#include "kernels/linear/prompt_body.h"

namespace glyd::gpu {
namespace {

// A product of the emulator's prompt kernel; the error, or "".
std::string Multiply(PackOnDevice& pack, Aligned<uint16_t>& x, int64_t m, uint16_t* bias,
                     int splits, simt::Order order, uint16_t* y, simt::Memory* memory,
                     simt::Counts* counts = nullptr) {
  const int64_t row_blocks = static_cast<int64_t>(pack.meta.rows / kStepRows);
  simt::Launch launch;
  const int64_t tiles = PromptTiles(row_blocks, m);
  launch.grid_x = static_cast<int>(tiles * splits);
  Aligned<float> partial(launch.grid_x * kPromptTokens * kPromptRows);
  Aligned<int> done(tiles);
  pack.AddTo(memory);
  memory->AddRead("x", x.data(), x.bytes());
  if (bias != nullptr) memory->AddRead("bias", bias, pack.meta.rows * 2);
  memory->AddWrite("y", y, m * pack.meta.rows * 2);
  memory->AddWrite("partial", partial.data(), partial.bytes());
  memory->AddWrite("done", done.data(), done.bytes());
  const PromptArgs args = {pack.view, row_blocks, x.data(),       m,          bias,
                           y,         splits,     partial.data(), done.data()};
  launch.order = order;
  launch.memory = memory;
  launch.counts = counts;
  std::string error =
      FindEmulated(pack.meta.layout == Layout::kMma ? "glyd_mma_prompt" : "glyd_mma12_prompt")
          .run(launch, &args);
  for (size_t i = 0; i < done.size(); ++i)
    if (done.data()[i] != 0) error += "a counter is left at " + std::to_string(done.data()[i]);
  return error;
}

class PromptTest : public ::testing::TestWithParam<Layout> {};

TEST_P(PromptTest, IsWithinTheErrorPromisedAndTheSameOnEveryRun) {
  const struct {
    uint64_t rows, cols;
    double wild;
  } shapes[] = {{64, 64, 0.002}, {320, 192, 0.3}, {128, 1024, 0}};
  for (const auto& shape : shapes) {
    std::vector<uint16_t> w = NormalWeights(shape.rows * shape.cols, 11);
    glyd::testing::Random random(5);
    for (uint16_t& v : w)
      if (random.Below(1000) < shape.wild * 1000) v ^= (1 + random.Below(20)) << 7;
    const auto pack = Encode(GetParam(), shape.rows, shape.cols, w.data());
    ASSERT_TRUE(pack.ok());
    PackOnDevice on_device(*pack);
    Aligned<uint16_t> bias(Activations(shape.rows, 3));
    for (const int64_t m : {1, 65, 128, 129, 200}) {
      Aligned<uint16_t> x(Activations(m * shape.cols, m));
      std::vector<uint16_t> first;
      for (const auto& [splits, order] : {std::pair{1, simt::Order::kForward},
                                          {1, simt::Order::kShuffled},
                                          {3, simt::Order::kForward},
                                          {3, simt::Order::kReverse},
                                          {3, simt::Order::kShuffled}}) {
        if (splits > static_cast<int>(shape.cols / 64)) continue;
        if (splits == 1) first.clear();
        const int skew = m == 65 ? 1 : 0;
        Aligned<uint16_t> y(m * shape.rows + 1);
        simt::Memory memory;
        const std::string what = std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                                 ", m " + std::to_string(m) + ", splits " + std::to_string(splits);
        uint16_t* b = m % 2 == 1 ? bias.data() : nullptr;
        ASSERT_EQ(Multiply(on_device, x, m, b, splits, order, y.data() + skew, &memory), "")
            << what;
        EXPECT_LE(RelativeError(w, x.data(), b, m, shape.rows, shape.cols, y.data() + skew), 6e-3)
            << what;
        const std::vector<uint16_t> now(y.data() + skew, y.data() + skew + m * shape.rows);
        if (first.empty() || order == simt::Order::kForward) first = now;
        EXPECT_EQ(now, first) << what << ' ' << kOrderNames[static_cast<int>(order)];
      }
    }
  }
}

TEST_P(PromptTest, ReadsThePackOnceFor128RowsOfX) {
  const uint64_t rows = 256, cols = 512;
  const std::vector<uint16_t> w = NormalWeights(rows * cols, 5);
  const auto pack = Encode(GetParam(), rows, cols, w.data());
  ASSERT_TRUE(pack.ok());
  PackOnDevice on_device(*pack);
  Aligned<uint16_t> x(Activations(128 * cols, 1)), y(128 * rows);
  simt::Memory memory;
  simt::Counts counts;
  ASSERT_EQ(
      Multiply(on_device, x, 128, nullptr, 1, simt::Order::kForward, y.data(), &memory, &counts),
      "");
  EXPECT_LE(PackBytesRead(memory) * 100, on_device.bytes() * 106);
  EXPECT_EQ(memory.traffic("x").read_sectors * 32, memory.traffic("x").read_bytes);
  EXPECT_EQ(memory.traffic("y").written_sectors * 32, y.bytes());
  const uint64_t steps = rows * cols / kStepWeights;
  EXPECT_EQ(counts.shared_conflicts / steps, GetParam() == Layout::kMma ? 32u : 0u);
  EXPECT_EQ(counts.shared_accesses / steps, GetParam() == Layout::kMma ? 174u : 136u);
  EXPECT_EQ(counts.mma, 64 * steps);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PromptTest, ::testing::Values(Layout::kMma, Layout::kMma12),
                         [](const auto& i) { return std::string(LayoutName(i.param)); });

}  // namespace
}  // namespace glyd::gpu
