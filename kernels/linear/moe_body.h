#ifndef GLYD_KERNELS_LINEAR_MOE_BODY_H_
#define GLYD_KERNELS_LINEAR_MOE_BODY_H_

#include "kernels/linear/step_body.h"

namespace glyd::gpu {

// Mixtures of experts: P pairs of a token and an expert (pair p: token p / k), sorted by expert.
//
//   a plan, i32 [2 + 2E + P]:  how many experts are hit, H | 0 | [E] those, rising | [E] where the
//   pairs of each
//                              begin | [P] the pairs, by expert, within one as they came
//
// An id outside [0, E) counts as the nearest expert: nothing is read or written out of bounds.
struct RouteArgs {
  const int64_t* ids;  // [P]
  int64_t pairs;
  int experts;  // 1 to kMaxExperts
  int32_t* plan;
};

inline constexpr int kRouteWarps = 8;
inline constexpr int kMaxExperts = 2048;
inline constexpr int kRouteSharedBytes = (kRouteWarps * kMaxExperts + 2 * kRouteWarps) * 4;

// One block. A warp counts the experts of its share of the pairs, then the counts become places,
// then it goes through its share again: the order is that of the pairs, whatever the schedule.
template <typename Lane>
GLYD_DEVICE void RouteBody(const Lane& lane, uint8_t* shared, const RouteArgs& a) {
  auto* counts = reinterpret_cast<int*>(shared);   // [warp][expert]
  int* sums = counts + kRouteWarps * kMaxExperts;  // [warp] pairs, [warp] experts hit
  const int threads = kRouteWarps * simt::kWarp;
  for (int e = lane.thread(); e < kRouteWarps * kMaxExperts; e += threads)
    if (e % kMaxExperts < a.experts) lane.SharedStore(&counts[e], 0);
  lane.SyncBlock();
  int* own = counts + lane.warp() * kMaxExperts;
  const int64_t begin = a.pairs * lane.warp() / kRouteWarps,
                end = a.pairs * (lane.warp() + 1) / kRouteWarps;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t first = begin; first < end; first += simt::kWarp) {
      const int64_t pair = first + lane.lane();
      const bool there = pair < end;
      int64_t id = there ? lane.Load(a.ids + pair) : 0;
      id = id < 0 ? 0 : id >= a.experts ? a.experts - 1 : id;
      const int expert = static_cast<int>(id);
      uint32_t same = lane.Ballot(simt::kAllLanes, there);  // lanes of this one's expert
      for (int bit = 1; bit < kMaxExperts; bit *= 2) {
        const uint32_t set = lane.Ballot(simt::kAllLanes, (expert & bit) != 0);
        same &= (expert & bit) != 0 ? set : ~set;
      }
      const uint32_t below = same & ((1u << lane.lane()) - 1);
      const int at = there ? lane.SharedLoad(&own[expert]) : 0;
      lane.SyncWarp();  // all have read before one adds
      if (there && pass == 1)
        lane.Store(a.plan + 2 + 2 * a.experts + at + simt::CountOnes(below),
                   static_cast<int32_t>(pair));
      if (there && below == 0) lane.SharedStore(&own[expert], at + simt::CountOnes(same));
      lane.SyncWarp();
    }
    if (pass == 1) break;
    lane.SyncBlock();  // publishes the counts
    // Counts become places: a thread has neighbouring experts.
    const int each = (a.experts + threads - 1) / threads;
    const int e0 = lane.thread() * each, e1 = e0 + each < a.experts ? e0 + each : a.experts;
    int pairs = 0, hits = 0;
    for (int e = e0; e < e1; ++e) {
      int here = 0;
      for (int w = 0; w < kRouteWarps; ++w) here += lane.SharedLoad(&counts[w * kMaxExperts + e]);
      pairs += here;
      hits += here > 0;
    }
    int pairs_before = static_cast<int>(ExclusiveScan(lane, static_cast<uint32_t>(pairs)));
    int hits_before = static_cast<int>(ExclusiveScan(lane, static_cast<uint32_t>(hits)));
    if (lane.lane() == simt::kWarp - 1) {
      lane.SharedStore(&sums[lane.warp()], pairs_before + pairs);
      lane.SharedStore(&sums[kRouteWarps + lane.warp()], hits_before + hits);
    }
    lane.SyncBlock();  // publishes the warps' sums
    for (int w = 0; w < lane.warp(); ++w) {
      pairs_before += lane.SharedLoad(&sums[w]);
      hits_before += lane.SharedLoad(&sums[kRouteWarps + w]);
    }
    for (int e = e0; e < e1; ++e) {
      const int start = pairs_before;
      for (int w = 0; w < kRouteWarps; ++w) {
        int* count = &counts[w * kMaxExperts + e];
        const int here = lane.SharedLoad(count);
        lane.SharedStore(count, pairs_before);
        pairs_before += here;
      }
      if (pairs_before == start) continue;
      lane.Store(a.plan + 2 + hits_before, static_cast<int32_t>(e));
      lane.Store(a.plan + 2 + a.experts + hits_before, static_cast<int32_t>(start));
      ++hits_before;
    }
    if (lane.thread() == threads - 1) {
      lane.Store(a.plan, static_cast<int32_t>(hits_before));
      lane.Store(a.plan + 1, int32_t{0});
    }
    lane.SyncBlock();  // publishes the places
  }
}

// The experts' products: y = x W_e^T + bias_e for each pair, in the plan's order.
struct MoeArgs {
  DevicePack pack;  // the experts' matrices [O, K], stacked
  int experts;
  int64_t row_blocks;  // O / 64 of one expert
  const uint16_t* x;   // gather: [T, K], the tokens'; else [P, K], in the plan's order
  int64_t pairs;       // P
  int64_t each;        // k, experts a token
  bool gather;
  const int32_t* plan;
  int act;  // 0; 1 SiLU, 2 GELU (tanh): y [P, O / 2] = act(gate) up, gate the first half of O
  const uint16_t* bias;  // [E, O] or null
  uint16_t* y;
  float* pair_sums;  // not null: [P, O], by pair, instead of y
};

// A block has a row block (with act: one of gate and the same of up) of one expert that is hit, and
// goes through the expert's pairs 8 kTiles at a time; its four warps share K.
//
//   shared: as the step kernel; then, with act, gate's sums [8 kTiles][64]
template <typename Reader, typename Config>
inline constexpr int kMoeSharedBytes =
    kStepSharedBytes<Reader, Config> + Config::kTiles * 8 * kStepRows * 4;

GLYD_DEVICE float Activation(int act, float v) {
  // 0.5 v (1 + tanh(u)) is v times the logistic function of 2u.
  const float u = act == 1 ? v : 1.5957691216057308f * (v + 0.044715f * v * v * v);
  return v / (1 + simt::Exp(-u));
}

template <typename Reader, typename Config, typename Lane>
GLYD_DEVICE void MoeBody(const Lane& lane, uint8_t* shared, const MoeArgs& a) {
  const int64_t blocks = a.act == 0 ? a.row_blocks : a.row_blocks / 2;
  const int64_t hit = lane.block_x() / blocks, row_block = lane.block_x() % blocks;
  const int hits = lane.Load(a.plan);
  if (hit >= hits) return;
  Reader::MakeTables(lane, a.pack, shared);
  lane.SyncBlock();  // publishes the tables
  uint8_t* stages =
      shared + Reader::kTableBytes + 16 + lane.warp() * kStepWarpBytes<Reader, Config>;
  auto* gates = reinterpret_cast<float*>(shared + kStepSharedBytes<Reader, Config>);
  const int64_t expert = lane.Load(a.plan + 2 + hit);
  const int32_t* starts = a.plan + 2 + a.experts;
  const int32_t* order = starts + a.experts;
  const int64_t end = hit + 1 < hits ? lane.Load(starts + hit + 1) : a.pairs;
  const int64_t rows = a.row_blocks * kStepRows, steps = a.pack.row_steps;
  const bool aligned = (reinterpret_cast<uintptr_t>(a.x) & 15) == 0;

  for (int64_t first = lane.Load(starts + hit); first < end; first += 8 * Config::kTiles) {
    const int count =
        end - first < 8 * Config::kTiles ? static_cast<int>(end - first) : 8 * Config::kTiles;
    for (int part = 0; part < (a.act == 0 ? 1 : 2); ++part) {
      const int64_t block = expert * a.row_blocks + part * blocks + row_block;
      float sum[4][Config::kTiles][4] = {};
      ZeroX<Reader, Config>(lane, stages);
      const int64_t last = steps * (lane.warp() + 1) / Config::kWarps;
      for (int64_t s = steps * lane.warp() / Config::kWarps; s < last; s += kRunSteps) {
        const auto multiply = [&](auto x) {
          x.Begin(lane, a.x, steps * kStepCols, count, s, [&](int row) {
            return a.gather ? lane.Load(order + first + row) / a.each : first + row;
          });
          MultiplySteps<Reader, Config>(
              lane, a.pack, x, block * steps + s,
              last - s < kRunSteps ? static_cast<int>(last - s) : kRunSteps, stages, shared, sum);
        };
        if (aligned)
          multiply(XReader<Config, true, true, Lane>());
        else
          multiply(XReader<Config, false, true, Lane>());
      }
      SumWarps<Reader, Config>(lane, shared, count, sum, [&](int m, int row, float v) {
        const int64_t out = (part * blocks + row_block) * kStepRows + row;
        if (a.bias != nullptr) v += simt::Bf16ToFloat(lane.Load(a.bias + expert * rows + out));
        if (a.pair_sums != nullptr)
          lane.Store(a.pair_sums + lane.Load(order + first + m) * rows + out, v);
        else if (a.act == 0)
          lane.Store(a.y + (first + m) * rows + out, simt::FloatToBf16(v));
        else if (part == 0)
          lane.SharedStore(gates + m * kStepRows + row, v);
        else  // the thread that kept the gate
          lane.Store(a.y + (first + m) * (rows / 2) + row_block * kStepRows + row,
                     simt::FloatToBf16(
                         Activation(a.act, lane.SharedLoad(gates + m * kStepRows + row)) * v));
      });
    }
  }
}

// y [T, O]: each token's pairs times their weights, added in the order of k.
struct CombineArgs {
  const float* pair_sums;  // [T k, O]
  const void* weights;     // [T, k], fp32 or bf16
  bool weights_are_fp32;
  int64_t tokens, each, rows;
  uint16_t* y;
};
inline constexpr int kCombineThreads = 128;

template <typename Lane>
GLYD_DEVICE void CombineBody(const Lane& lane, uint8_t*, const CombineArgs& a) {
  const int64_t stride = int64_t{lane.grid_x()} * kCombineThreads;
  for (int64_t i = int64_t{lane.block_x()} * kCombineThreads + lane.thread(); i < a.tokens * a.rows;
       i += stride) {
    const int64_t token = i / a.rows;
    float sum = 0;
    for (int64_t k = 0; k < a.each; ++k) {
      const int64_t pair = token * a.each + k;
      const float weight =
          a.weights_are_fp32
              ? lane.Load(static_cast<const float*>(a.weights) + pair)
              : simt::Bf16ToFloat(lane.Load(static_cast<const uint16_t*>(a.weights) + pair));
      sum += weight * lane.Load(a.pair_sums + pair * a.rows + i % a.rows);
    }
    lane.Store(a.y + i, simt::FloatToBf16(sum));
  }
}

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_LINEAR_MOE_BODY_H_
