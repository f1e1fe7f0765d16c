#include <gtest/gtest.h>

#include "kernels/cuda/testing.h"
#include "kernels/linear/step_body.h"

namespace glyd::gpu {
namespace {

// A product of the emulator's step kernel; the error, or "".
std::string Multiply(PackOnDevice& pack, Aligned<uint16_t>& x, int skew, int64_t m, uint16_t* bias,
                     int grid, simt::Order order, Aligned<uint16_t>& y, simt::Memory* memory,
                     simt::Counts* counts = nullptr) {
  const uint64_t rows = pack.meta.rows;
  Aligned<float> partial(2 * grid * m * kStepRows);
  Aligned<int> done(rows / kStepRows);
  pack.AddTo(memory);
  memory->AddRead("x", x.data(), x.bytes());
  if (bias != nullptr) memory->AddRead("bias", bias, rows * 2);
  memory->AddWrite("y", y.data(), y.bytes());
  memory->AddWrite("partial", partial.data(), partial.bytes());
  memory->AddWrite("done", done.data(), done.bytes());
  const StepArgs args = {pack.view,
                         static_cast<int64_t>(rows / kStepRows),
                         x.data() + skew,
                         m,
                         bias,
                         y.data(),
                         partial.data(),
                         done.data()};
  simt::Launch launch;
  launch.grid_x = grid;
  launch.order = order;
  launch.memory = memory;
  launch.counts = counts;
  const int tiles = m <= 8 ? 1 : m <= 16 ? 2 : m <= 32 ? 4 : 8;
  const std::string name =
      std::string(pack.meta.layout == Layout::kMma ? "glyd_mma_step" : "glyd_mma12_step") +
      std::to_string(tiles);
  std::string error = FindEmulated(name).run(launch, &args);
  for (size_t i = 0; i < done.size(); ++i)
    if (done.data()[i] != 0) error += "a counter is left at " + std::to_string(done.data()[i]);
  return error;
}

class StepTest : public ::testing::TestWithParam<Layout> {};

TEST_P(StepTest, IsWithinTheErrorPromisedAndTheSameOnEveryRun) {
  const struct { uint64_t rows, cols; } shapes[] = {{64, 16}, {128, 80}, {320, 1040}, {64, 2080}};
  for (const auto& shape : shapes)
    for (const double wild : {0.0, 0.002, 0.3}) {
      std::vector<uint16_t> w = NormalWeights(shape.rows * shape.cols, 11);
      glyd::testing::Random random(5);
      for (uint16_t& v : w)  // other exponents, near enough that a sum is not one number's
        if (random.Below(1000) < wild * 1000) v ^= (1 + random.Below(20)) << 7;
      const auto pack = Encode(GetParam(), shape.rows, shape.cols, w.data());
      ASSERT_TRUE(pack.ok());
      PackOnDevice on_device(*pack);
      const std::vector<uint16_t> bias_values = Activations(shape.rows, 3);
      Aligned<uint16_t> bias(bias_values);
      for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 33, 64}) {
        if (wild > 0 && m > 9) continue;
        const bool with_bias = m % 2 == 1;
        const int skew = m == 2 || m == 17 ? 1 : 0;
        std::vector<uint16_t> values = Activations(m * shape.cols + skew, m);
        Aligned<uint16_t> x(values);
        std::vector<uint16_t> first;
        for (const auto& [grid, order] : {std::pair{3, simt::Order::kForward},
                                          {3, simt::Order::kReverse},
                                          {3, simt::Order::kShuffled},
                                          {1, simt::Order::kForward},
                                          {17, simt::Order::kShuffled}}) {
          const int64_t steps = shape.rows * shape.cols / kStepWeights;
          if (grid > steps) continue;
          Aligned<uint16_t> y(m * shape.rows);
          simt::Memory memory;
          const std::string what = std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                                   ", m " + std::to_string(m) + ", grid " + std::to_string(grid);
          ASSERT_EQ(Multiply(on_device, x, skew, m, with_bias ? bias.data() : nullptr, grid, order,
                             y, &memory),
                    "")
              << what;
          EXPECT_LE(RelativeError(w, x.data() + skew, with_bias ? bias.data() : nullptr, m,
                                  shape.rows, shape.cols, y.data()),
                    6e-3)
              << what;
          if (grid != 3) continue;
          if (first.empty()) first = y.vector();
          EXPECT_EQ(y.vector(), first) << what << ' ' << kOrderNames[static_cast<int>(order)];
        }
      }
    }
}

// Each weight alone, by x of one 1 a row: its own bits come out, whatever they are.
TEST_P(StepTest, GivesEachWeightItself) {
  for (const WeightCase& c : WeightCases()) {
    const uint64_t rows = 64, cols = 64;
    std::vector<uint16_t> w = c.make(rows * cols, 2);
    for (uint16_t& v : w)  // 0 times infinity is no zero
      if ((v >> 7 & 0xFF) == 0xFF) v &= 0xBFFF;
    const auto pack = Encode(GetParam(), rows, cols, w.data());
    ASSERT_TRUE(pack.ok());
    PackOnDevice on_device(*pack);
    std::vector<uint16_t> ones(cols * cols);
    for (uint64_t i = 0; i < cols; ++i) ones[i * cols + i] = 0x3F80;
    Aligned<uint16_t> x(ones), y(cols * rows);
    simt::Memory memory;
    ASSERT_EQ(Multiply(on_device, x, 0, cols, nullptr, 2, simt::Order::kShuffled, y, &memory), "")
        << c.name;
    for (uint64_t i = 0; i < cols; ++i)
      for (uint64_t o = 0; o < rows; ++o)
        ASSERT_EQ(simt::Bf16ToFloat(y.data()[i * rows + o]), simt::Bf16ToFloat(w[o * cols + i]))
            << c.name;
  }
}

TEST_P(StepTest, ReadsThePackOnce) {
  const uint64_t rows = 512, cols = 1024, steps = rows * cols / kStepWeights;
  const std::vector<uint16_t> w = NormalWeights(rows * cols, 5);
  const auto pack = Encode(GetParam(), rows, cols, w.data());
  ASSERT_TRUE(pack.ok());
  PackOnDevice on_device(*pack);
  Aligned<uint16_t> x(Activations(cols, 1)), y(rows);
  simt::Memory memory;
  simt::Counts counts;
  ASSERT_EQ(Multiply(on_device, x, 0, 1, nullptr, 4, simt::Order::kForward, y, &memory, &counts),
            "");
  EXPECT_LE(PackBytesRead(memory) * 100, on_device.bytes() * 105);
  const simt::Traffic& of_x = memory.traffic("x");
  EXPECT_EQ(of_x.read_sectors * 32, of_x.read_bytes);
  // Turns of shared memory's banks and mma instructions; a change is a change of the kernel's cost.
  EXPECT_EQ(counts.shared_conflicts / steps, GetParam() == Layout::kMma ? 32u : 0u);
  EXPECT_EQ(counts.shared_accesses / steps, GetParam() == Layout::kMma ? 54u : 16u);
  EXPECT_EQ(counts.mma, 4 * steps);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepTest, ::testing::Values(Layout::kMma, Layout::kMma12),
                         [](const auto& i) { return std::string(LayoutName(i.param)); });

}  // namespace
}  // namespace glyd::gpu
