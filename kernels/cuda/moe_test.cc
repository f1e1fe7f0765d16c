#include <gtest/gtest.h>

#include <map>

#include "kernels/cuda/testing.h"
#include "kernels/decode/unpack_body.h"
#include "kernels/linear/moe_body.h"

namespace glyd::gpu {
namespace {

simt::Launch Blocks(int64_t grid, simt::Order order, simt::Memory* memory) {
  simt::Launch launch;
  launch.grid_x = static_cast<int>(grid);
  launch.order = order;
  launch.memory = memory;
  return launch;
}

Aligned<int32_t> Plan(Aligned<int64_t>& ids, int experts, simt::Order order) {
  Aligned<int32_t> plan(2 + 2 * experts + ids.size());
  std::fill_n(plan.data(), plan.size(), -7);
  simt::Memory memory;
  memory.AddRead("ids", ids.data(), ids.bytes());
  memory.AddWrite("plan", plan.data(), plan.bytes());
  const RouteArgs args = {ids.data(), static_cast<int64_t>(ids.size()), experts, plan.data()};
  EXPECT_EQ(FindEmulated("glyd_moe_route").run(Blocks(1, order, &memory), &args), "");
  return plan;
}

std::vector<int64_t> Ids(int64_t pairs, int64_t experts, uint64_t seed) {
  glyd::testing::Random random(seed);
  std::vector<int64_t> ids(pairs);
  // Some experts far more often than others, some never.
  for (int64_t& id : ids) id = static_cast<int64_t>(random.Below(random.Below(experts) + 1));
  return ids;
}

TEST(MoeRoute, SortsPairsByExpertAndKeepsTheirOrder) {
  for (const auto& [pairs, experts] :
       {std::pair{1, 1}, {7, 3}, {64, 8}, {1000, 128}, {300, 2048}, {0, 4}})
    for (int order = 0; order < 3; ++order) {
      Aligned<int64_t> ids(Ids(pairs, experts, pairs));
      if (pairs == 1000)
        ids.data()[5] = -3, ids.data()[9] = int64_t{1} << 40;  // the nearest expert
      std::map<int64_t, std::vector<int32_t>> want;
      for (int32_t p = 0; p < pairs; ++p)
        want[std::clamp<int64_t>(ids.data()[p], 0, experts - 1)].push_back(p);
      Aligned<int32_t> plan = Plan(ids, experts, static_cast<simt::Order>(order));
      const int32_t* v = plan.data();
      ASSERT_EQ(v[0], static_cast<int32_t>(want.size())) << pairs << ' ' << experts;
      int32_t hit = 0, at = 0;
      for (const auto& [expert, list] : want) {
        EXPECT_EQ(v[2 + hit], expert);
        EXPECT_EQ(v[2 + experts + hit], at);
        for (const int32_t p : list) EXPECT_EQ(v[2 + 2 * experts + at++], p);
        ++hit;
      }
    }
}

struct Experts {
  Experts(Layout layout, int experts, uint64_t rows, uint64_t cols)
      : weights(NormalWeights(experts * rows * cols, 3)),
        pack(*Encode(layout, experts * rows, cols, weights.data())) {}
  std::vector<uint16_t> weights;
  PackOnDevice pack;
};

class MoeTest : public ::testing::TestWithParam<Layout> {};

TEST_P(MoeTest, ProductsOfEachPair) {
  const int experts = 5;
  const uint64_t rows = 128, cols = 208;
  Experts e(GetParam(), experts, rows, cols);
  Aligned<uint16_t> bias(Activations(experts * rows, 8));
  const auto value = [&](int64_t expert, int64_t row, const uint16_t* x, bool with_bias) {
    double sum = with_bias ? simt::Bf16ToFloat(bias.data()[expert * rows + row]) : 0;
    for (uint64_t k = 0; k < cols; ++k)
      sum += double{simt::Bf16ToFloat(e.weights[(expert * rows + row) * cols + k])} *
             simt::Bf16ToFloat(x[k]);
    return sum;
  };
  for (const auto& [tokens, each] : {std::pair{1, 2}, {9, 3}, {40, 2}})
    for (const char* kind : {"plain", "pairs", "silu", "gelu", "weighted"}) {
      const std::string k = kind;
      const int64_t pairs = tokens * each;
      Aligned<int64_t> ids(Ids(pairs, experts, tokens));
      Aligned<int32_t> plan = Plan(ids, experts, simt::Order::kShuffled);
      const int32_t* order = plan.data() + 2 + 2 * experts;
      const bool gather = k != "pairs", with_bias = k == "silu" || k == "pairs";
      const int act = k == "silu" ? 1 : k == "gelu" ? 2 : 0;
      Aligned<uint16_t> x(Activations((gather ? tokens : pairs) * cols, 5));
      Aligned<float> weights(tokens * each), sums(pairs * rows);
      for (size_t i = 0; i < weights.size(); ++i)
        weights.data()[i] = 0.1f + 0.05f * static_cast<float>(i % 7);
      const uint64_t out = act == 0 ? rows : rows / 2;
      Aligned<uint16_t> y((k == "weighted" ? tokens : pairs) * out);
      for (const char* tiles : {"1", "4"}) {
        simt::Memory memory;
        e.pack.AddTo(&memory);
        memory.AddRead("x", x.data(), x.bytes());
        memory.AddRead("plan", plan.data(), plan.bytes());
        memory.AddRead("bias", bias.data(), bias.bytes());
        memory.AddWrite("y", y.data(), y.bytes());
        memory.AddWrite("sums", sums.data(), sums.bytes());
        const MoeArgs args = {e.pack.view,
                              experts,
                              static_cast<int64_t>(rows / kStepRows),
                              x.data(),
                              pairs,
                              each,
                              gather,
                              plan.data(),
                              act,
                              with_bias ? bias.data() : nullptr,
                              y.data(),
                              k == "weighted" ? sums.data() : nullptr};
        const int64_t grid = std::min<int64_t>(experts, pairs) * (act == 0 ? 2 : 1);
        const std::string name = GetParam() == Layout::kMma ? "glyd_mma_moe" : "glyd_mma12_moe";
        ASSERT_EQ(
            FindEmulated(name + tiles).run(Blocks(grid, simt::Order::kShuffled, &memory), &args),
            "")
            << kind;
        if (k == "weighted") {
          simt::Memory combine;
          combine.AddRead("sums", sums.data(), sums.bytes());
          combine.AddRead("weights", weights.data(), weights.bytes());
          combine.AddWrite("y", y.data(), y.bytes());
          const CombineArgs c = {sums.data(), weights.data(), true,
                                 tokens,      each,           static_cast<int64_t>(rows),
                                 y.data()};
          ASSERT_EQ(
              FindEmulated("glyd_moe_combine").run(Blocks(3, simt::Order::kReverse, &combine), &c),
              "");
        }
        double off = 0, all = 0;
        for (int64_t i = 0; i < static_cast<int64_t>(y.size() / out); ++i)
          for (int64_t o = 0; o < static_cast<int64_t>(out); ++o) {
            double want = 0;
            if (k == "weighted") {
              for (int64_t j = 0; j < each; ++j)
                want += weights.data()[i * each + j] *
                        value(ids.data()[i * each + j], o, x.data() + i * cols, with_bias);
            } else {
              const int64_t pair = order[i], expert = ids.data()[pair];
              const uint16_t* from = x.data() + (gather ? pair / each : i) * cols;
              want = value(expert, o, from, with_bias);
              if (act != 0) {
                const double up = value(expert, o + static_cast<int64_t>(out), from, with_bias);
                want = (act == 1 ? want / (1 + std::exp(-want))
                                 : 0.5 * want *
                                       (1 + std::tanh(0.7978845608028654 *
                                                      (want + 0.044715 * want * want * want)))) *
                       up;
              }
            }
            const double is = simt::Bf16ToFloat(y.data()[i * out + o]);
            off += (is - want) * (is - want);
            all += want * want;
          }
        EXPECT_LE(std::sqrt(off / all), 6e-3)
            << kind << ", " << tokens << " tokens, tiles " << tiles;
      }
    }
}

TEST_P(MoeTest, UnpacksTheExpertsThatAreHit) {
  const int experts = 6;
  const uint64_t rows = 64, cols = 80;
  Experts e(GetParam(), experts, rows, cols);
  Aligned<int64_t> ids(std::vector<int64_t>{4, 1, 4, 4});
  Aligned<int32_t> plan = Plan(ids, experts, simt::Order::kForward);
  Aligned<uint16_t> out(experts * rows * cols);
  std::fill_n(out.data(), out.size(), 0xABCD);
  simt::Memory memory;
  e.pack.AddTo(&memory);
  memory.AddRead("plan", plan.data(), plan.bytes());
  memory.AddWrite("out", out.data(), out.bytes());
  const UnpackArgs args = {e.pack.view, 0,           static_cast<int64_t>(experts * rows),
                           out.data(),  plan.data(), 1};
  ASSERT_EQ(FindEmulated(GetParam() == Layout::kMma ? "glyd_mma_unpack" : "glyd_mma12_unpack")
                .run(Blocks(2, simt::Order::kShuffled, &memory), &args),
            "");
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t expert = i / (rows * cols);
    ASSERT_EQ(out.data()[i], expert == 1 || expert == 4 ? e.weights[i] : 0xABCD) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, MoeTest, ::testing::Values(Layout::kMma, Layout::kMma12),
                         [](const auto& i) { return std::string(LayoutName(i.param)); });

}  // namespace
}  // namespace glyd::gpu
