#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/simt/host_lane.h"

namespace glyd::simt {
namespace {

using ::testing::HasSubstr;

constexpr Order kOrders[] = {Order::kForward, Order::kReverse, Order::kShuffled};

template <typename Body>
std::string RunIn(Order order, int threads, size_t shared_bytes, Body body,
                  Memory* memory = nullptr, Counts* counts = nullptr) {
  Launch launch;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  launch.order = order;
  launch.memory = memory;
  launch.counts = counts;
  return Run(launch, body);
}

TEST(Simt, ScanOfABlockIsRightInEveryOrder) {
  constexpr int kThreads = 128;
  for (const Order order : kOrders) {
    std::vector<uint32_t> out(kThreads);
    EXPECT_EQ(RunIn(order, kThreads, 16,
                    [&](HostLane& lane, void* shared) {
                      auto* totals = static_cast<uint32_t*>(shared);
                      uint32_t v = lane.thread() * 3 + 1;
                      for (int d = 1; d < kWarp; d *= 2) {
                        const uint32_t below = lane.ShuffleUp(kAllLanes, v, d);
                        if (lane.lane() >= d) v += below;
                      }
                      if (lane.lane() == kWarp - 1) lane.SharedStore(&totals[lane.warp()], v);
                      lane.SyncBlock();
                      for (int w = 0; w < lane.warp(); ++w) v += lane.SharedLoad(&totals[w]);
                      lane.Store(&out[lane.thread()], v);
                    }),
              "");
    uint32_t sum = 0;
    for (int i = 0; i < kThreads; ++i) EXPECT_EQ(out[i], sum += i * 3 + 1) << i;
  }
}

TEST(Simt, MissingBarrierShowsInSomeOrder) {
  int wrong = 0;
  for (const Order order : kOrders)
    wrong += !RunIn(order, 64, 256, [](HostLane& lane, void* shared) {
                auto* v = static_cast<uint32_t*>(shared);
                lane.SharedStore(&v[lane.thread()], 1u);
                lane.SharedLoad(&v[63 - lane.thread()]);
              }).empty();
  EXPECT_EQ(wrong, 3);  // what nothing wrote is told in each
}

TEST(Simt, ABarrierThatSomeThreadsMiss) {
  for (const Order order : kOrders)
    EXPECT_THAT(RunIn(order, 64, 0,
                      [](HostLane& lane, void*) {
                        if (lane.warp() == 1) lane.SyncBlock();
                      }),
                HasSubstr("divergent: 32 threads at the block's barrier"));
}

TEST(Simt, ACollectiveThatHalfAWarpMisses) {
  for (const Order order : kOrders)
    EXPECT_THAT(RunIn(order, 32, 0,
                      [](HostLane& lane, void*) {
                        if (lane.lane() < 16) lane.Ballot(kAllLanes, true);
                      }),
                HasSubstr("16 at a warp's"));
}

TEST(Simt, SharedMemoryOutOfBoundsAndMisaligned) {
  EXPECT_THAT(RunIn(Order::kForward, 32, 64,
                    [](HostLane& lane, void* shared) {
                      lane.SharedStore(static_cast<uint32_t*>(shared) + 16 + lane.lane(), 1u);
                    }),
              HasSubstr("outside the block's 64 bytes"));
  EXPECT_THAT(RunIn(Order::kForward, 32, 64,
                    [](HostLane& lane, void* shared) {
                      lane.SharedStore(reinterpret_cast<uint32_t*>(static_cast<char*>(shared) + 2),
                                       1u);
                    }),
              HasSubstr("not a multiple of the size"));
}

TEST(Simt, GlobalMemoryOutOfBoundsAndReadOnly) {
  std::vector<uint32_t> in(32), out(32);
  Memory memory;
  memory.AddRead("in", in.data(), 128);
  memory.AddWrite("out", out.data(), 128);
  EXPECT_THAT(RunIn(
                  Order::kForward, 32, 0,
                  [&](HostLane& lane, void*) { lane.Load(in.data() + lane.lane() + 1); }, &memory),
              HasSubstr("in no buffer"));
  EXPECT_THAT(RunIn(
                  Order::kForward, 32, 0,
                  [&](HostLane& lane, void*) { lane.Store(in.data() + lane.lane(), 1u); }, &memory),
              HasSubstr("\"in\" is read-only"));
}

TEST(Simt, AnAsynchronousCopyLandsAtItsWaitAndIsMissedWithoutOne) {
  std::vector<uint32_t> in(32, 7);
  EXPECT_THAT(RunIn(Order::kForward, 32, 128,
                    [&](HostLane& lane, void* shared) {
                      auto* v = static_cast<uint32_t*>(shared) + lane.lane();
                      lane.CopyAsync<4>(v, &in[lane.lane()]);
                      lane.CommitCopies();
                      lane.SharedLoad(v);
                    }),
              HasSubstr("nothing wrote byte"));
  EXPECT_THAT(RunIn(Order::kForward, 32, 128,
                    [&](HostLane& lane, void* shared) {
                      lane.CopyAsync<4>(static_cast<uint32_t*>(shared) + lane.lane(), &in[0]);
                      lane.CommitCopies();
                    }),
              HasSubstr("did not wait"));
  EXPECT_EQ(RunIn(Order::kForward, 32, 256,
                  [&](HostLane& lane, void* shared) {
                    auto* v = static_cast<uint32_t*>(shared) + lane.lane();
                    lane.CopyAsync<4>(v, &in[lane.lane()]);
                    lane.CommitCopies();
                    lane.CopyAsyncIf<4>(lane.lane() % 2 == 0, v + 32, &in[lane.lane()]);
                    lane.CommitCopies();
                    lane.WaitCopies<1>();
                    EXPECT_EQ(lane.SharedLoad(v), 7u);
                    lane.WaitCopies<0>();
                    if (lane.lane() % 2 == 0) {
                      EXPECT_EQ(lane.SharedLoad(v + 32), 7u);
                    }
                  }),
            "");
}

TEST(Simt, CountsSectorsAndBankConflicts) {
  alignas(32) static uint32_t in[64 * 32];
  Memory memory;
  memory.AddRead("in", in, sizeof in);
  Counts counts;
  EXPECT_EQ(RunIn(
                Order::kForward, 32, 32 * 32 * 4,
                [&](HostLane& lane, void* shared) {
                  lane.Load(&in[lane.lane()]);       // 4 sectors
                  lane.Load(&in[lane.lane() * 16]);  // 32
                  auto* v = static_cast<uint32_t*>(shared);
                  lane.SharedStore(&v[lane.lane()], 0u);
                  lane.SharedStore(&v[lane.lane() * 32], 0u);  // one bank
                },
                &memory, &counts),
            "");
  EXPECT_EQ(memory.traffic("in").read_sectors, 36u);
  EXPECT_EQ(memory.traffic("in").read_bytes, 256u);
  EXPECT_EQ(counts.shared_accesses, 2u);
  EXPECT_EQ(counts.shared_conflicts, 31u);
}

TEST(Simt, MmaAndLoadMatricesTakeTheFragmentsOfTheirInstructions) {
  // A is 16 x 16 by rows; B^T is 8 x 16 by rows; each number is small and exact.
  std::vector<uint16_t> a(256), b(128);
  const auto bf16 = [](int v) { return FloatToBf16(static_cast<float>(v)); };
  const auto at = [](int r, int k) { return (r * 5 + k * 3) % 7 - 3; };
  const auto bt = [](int n, int k) { return (n * 2 + k * 5) % 9 - 4; };
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < 16; ++k) a[r * 16 + k] = bf16(at(r, k));
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 16; ++k) b[n * 16 + k] = bf16(bt(n, k));
  std::vector<float> d(128);
  EXPECT_EQ(RunIn(Order::kShuffled, 32, 768,
                  [&](HostLane& lane, void* shared) {
                    auto* s = static_cast<uint16_t*>(shared);
                    for (int i = lane.lane(); i < 384; i += kWarp)
                      lane.SharedStore(&s[i], i < 256 ? a[i] : b[i - 256]);
                    lane.SyncWarp();
                    const int l = lane.lane(), m = l / 8, row = l % 8;
                    uint32_t fa[4], fb[4];
                    lane.LoadMatrices(s + ((m & 1) * 8 + row) * 16 + (m >> 1) * 8, fa);
                    lane.LoadMatrices(s + 256 + row * 16 + (m & 1) * 8, fb);
                    float sum[4] = {};
                    const uint32_t low[2] = {fb[0], fb[1]};
                    lane.Mma(sum, fa, low);
                    for (int i = 0; i < 4; ++i)
                      lane.Store(&d[(l / 4 + 8 * (i >> 1)) * 8 + 2 * (l % 4) + (i & 1)], sum[i]);
                  }),
            "");
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += at(r, k) * bt(n, k);
      EXPECT_EQ(d[r * 8 + n], sum) << r << ' ' << n;
    }
}

TEST(Simt, AFailedLaunchLeavesTheNextOneWell) {
  EXPECT_NE(RunIn(Order::kForward, 128, 0,
                  [](HostLane& lane, void*) {
                    if (lane.thread() < 64) lane.SyncBlock();
                  }),
            "");
  int ran = 0;
  EXPECT_EQ(RunIn(Order::kForward, 128, 0,
                  [&](HostLane& lane, void*) {
                    lane.SyncBlock();
                    ++ran;
                  }),
            "");
  EXPECT_EQ(ran, 128);
}

}  // namespace
}  // namespace glyd::simt
