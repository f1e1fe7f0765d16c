#include <gtest/gtest.h>

#include "kernels/cuda/testing.h"
#include "kernels/decode/unpack_body.h"

namespace glyd::gpu {
namespace {

// Decodes rows of a pack by the emulator; the error, or "".
std::string Unpack(const EncodedPack& pack, int64_t row0, int64_t rows, int grid, simt::Order order,
                   uint16_t* out, simt::Memory* memory, simt::Counts* counts = nullptr) {
  PackOnDevice on_device(pack);
  on_device.AddTo(memory);
  UnpackArgs args = {on_device.view, row0, rows, out};
  memory->AddWrite("out", out, rows * pack.meta.cols * 2);
  simt::Launch launch;
  launch.grid_x = grid;
  launch.order = order;
  launch.memory = memory;
  launch.counts = counts;
  return FindEmulated(pack.meta.layout == Layout::kMma ? "glyd_mma_unpack" : "glyd_mma12_unpack")
      .run(launch, &args);
}

class UnpackTest : public ::testing::TestWithParam<Layout> {};

TEST_P(UnpackTest, GivesEveryBitOfTheMatrix) {
  const struct {
    uint64_t rows, cols;
  } shapes[] = {{64, 16}, {64, 64}, {128, 80}, {64, 1040}, {320, 272}};
  for (const WeightCase& c : WeightCases())
    for (const auto& shape : shapes)
      for (int order = 0; order < 3; ++order) {
        const std::vector<uint16_t> w = c.make(shape.rows * shape.cols, 7);
        const auto pack = Encode(GetParam(), shape.rows, shape.cols, w.data());
        ASSERT_TRUE(pack.ok()) << pack.status();
        std::vector<uint16_t> out(w.size());
        simt::Memory memory;
        ASSERT_EQ(
            Unpack(*pack, 0, shape.rows, 3, static_cast<simt::Order>(order), out.data(), &memory),
            "")
            << c.name << ' ' << shape.rows << " x " << shape.cols << ' ' << kOrderNames[order];
        ASSERT_EQ(out, w) << c.name << ' ' << shape.rows << " x " << shape.cols << ' '
                          << kOrderNames[order];
      }
}

TEST_P(UnpackTest, AnyRowsAnywhere) {
  const uint64_t rows = 192, cols = 96;
  const std::vector<uint16_t> w = glyd::testing::Weights(rows * cols, 0.01, 3);
  const auto pack = Encode(GetParam(), rows, cols, w.data());
  ASSERT_TRUE(pack.ok());
  for (const auto& [row0, count] :
       {std::pair{0, 64}, {64, 128}, {1, 1}, {63, 2}, {70, 100}, {191, 1}})
    for (const int skew : {0, 1}) {  // an output that is not 16-byte aligned
      Aligned<uint16_t> out(count * cols + 8);
      uint16_t* at = out.data() + skew;
      simt::Memory memory;
      ASSERT_EQ(Unpack(*pack, row0, count, 1, simt::Order::kShuffled, at, &memory), "") << row0;
      EXPECT_TRUE(std::equal(at, at + count * cols, w.begin() + row0 * cols))
          << row0 << ' ' << count;
    }
}

// What a launch moves, in 32-byte sectors: the pack once, and each sector of the matrix once.
TEST_P(UnpackTest, ReadsThePackOnceAndWritesWholeSectors) {
  const uint64_t rows = 256, cols = 1024, steps = rows * cols / kStepWeights;
  const std::vector<uint16_t> w = NormalWeights(rows * cols, 5);
  const auto pack = Encode(GetParam(), rows, cols, w.data());
  ASSERT_TRUE(pack.ok());
  Aligned<uint16_t> out(w.size());
  simt::Memory memory;
  simt::Counts counts;
  ASSERT_EQ(Unpack(*pack, 0, rows, 2, simt::Order::kForward, out.data(), &memory, &counts), "");
  EXPECT_EQ(memory.traffic("out").written_sectors, w.size() * 2 / 32);
  EXPECT_LE(PackBytesRead(memory) * 100, PackOnDevice(*pack).bytes() * 105);
  // Of the shared memory, in turns of its banks; a change is a change of the kernel's cost.
  EXPECT_EQ(counts.shared_conflicts / steps, GetParam() == Layout::kMma ? 32u : 0u);
  EXPECT_EQ(counts.shared_accesses / steps, GetParam() == Layout::kMma ? 82u : 44u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnpackTest, ::testing::Values(Layout::kMma, Layout::kMma12),
                         [](const auto& i) { return std::string(LayoutName(i.param)); });

}  // namespace
}  // namespace glyd::gpu
