#ifndef GLYD_KERNELS_LINEAR_STEP_BODY_H_
#define GLYD_KERNELS_LINEAR_STEP_BODY_H_

#include "kernels/decode/device_pack.h"
#include "kernels/format/step.h"
#include "kernels/simt/simt.h"

namespace glyd::gpu {

// y = x W^T + bias for M of 1 to 64: x [M, K], y [M, O] bf16, row-major; bias [O] or null.
struct StepArgs {
  DevicePack pack;
  int64_t row_blocks;  // O / 64
  const uint16_t* x;
  int64_t m;
  const uint16_t* bias;
  uint16_t* y;
  float* partial;  // [2 * grid, M, 64]; unused where every block of threads has whole row blocks
  int* done;       // [O / 64], zero before and after
};

// The steps of W are dealt out evenly, in order, to the blocks of the grid (stream-K); a block's
// part of a row block is a segment, and its warps have equal runs of it. A row block that several
// blocks share is summed by the last of them to come, in the blocks' order: the same bits on every
// run of a grid.
//
//   operands swapped: a step of W is the A side of four mma.m16n8k16 a tile of 8 rows of x, which
//   is B:
//
//           x tile  K 16 x 8          A of pair p: rows 16p .. 16p+15 of the step, two neighbouring
//           groups n,
//         W step  +--------+          whose registers a lane has as the pack holds them
//       64 x 16   | y^T    |          sums [4 pairs][kTiles][4] a lane: row g or g + 8, x rows 2t,
//       2t + 1
//                 | 64 x 8 |
//                 +--------+
//
//   a stage: kStageSteps of the reader | x, for two steps after two, kTiles x 512: columns 0-7,
//   8-15, 16-23, 24-31 of 8 rows shared, a warp:  kStages stages | the reader's scratch shared, a
//   block: the reader's tables; the sums of all warps, a tile at a time, over the stages
//
// Bytes moved: the pack once; x once a row block and grid block; 2 M O of y. A wait and a warp's
// barrier a stage, for copies begun kStages - 1 stages before; the barriers of a block are in
// MakeTables and at a segment's end alone.
template <int kTilesOf>
struct StepConfig {
  static constexpr int kTiles = kTilesOf;  // of 8 rows of x
  static constexpr int kWarps = 4;
  // Longer stages have fewer waits, more of them have less memory that is neither read nor being
  // filled.
  static constexpr int kStageSteps = kTiles <= 2 ? 4 : 2;
  static constexpr int kStages = kTiles <= 2 ? 2 : 3;
};

inline constexpr int kSumRow = kStepRows + 4;  // floats; a lane's are in bank 8t + g

template <typename Reader, typename Config>
inline constexpr int kStepStageBytes = Config::kStageSteps*(Reader::kStageBytes +
                                                            256 * Config::kTiles);
template <typename Reader, typename Config>
inline constexpr int kStepWarpBytes =
    Config::kStages* kStepStageBytes<Reader, Config> + Reader::kBlockBytes + Reader::kLanesBytes;
template <typename Reader, typename Config>
inline constexpr int kStepSharedBytes =
    Reader::kTableBytes + 16 + Config::kWarps* kStepWarpBytes<Reader, Config>;

// The first step of block c of a grid that shares `steps`.
GLYD_DEVICE int64_t FirstStep(int64_t steps, int64_t grid, int64_t c) { return steps * c / grid; }
// The block that has step s.
GLYD_DEVICE int64_t BlockOfStep(int64_t steps, int64_t grid, int64_t s) {
  return ((s + 1) * grid - 1) / steps;
}

// A warp's way through the columns of x: a lane copies eight of each 32 of a row of every tile.
// Rows from `rows` on are not copied: they are zeros from the segment's begin on. kAligned: x is
// 16-byte aligned. kGather: the rows of a product are any of x, else x's first.
template <typename Config, bool kAlignedX, bool kGather, typename Lane>
class XReader {
 public:
  static constexpr bool kAligned = kAlignedX;

  // row_of(r): the row of x that is row r of the product; asked for r below `rows` alone.
  template <typename RowOf>
  GLYD_DEVICE void Begin(const Lane& lane, const uint16_t* x, int64_t cols, int rows,
                         int64_t column_step, const RowOf& row_of) {
    const int row = lane.lane() % 8;
    rows_ = rows - row;
    stride_ = cols * 8;
    x += column_step * kStepCols + lane.lane() / 8 * 8;
    GLYD_UNROLL
    for (int tile = 0; tile < kPointers; ++tile)
      next_[tile] = x + (rows_ > 8 * tile ? row_of(row + 8 * tile) : 0) * cols;
  }
  // `steps` of a stage, the first `ahead` of those that Advance has passed.
  GLYD_DEVICE void Issue(const Lane& lane, int ahead, int steps, uint8_t* to) const {
    to += 16 * lane.lane();
    GLYD_UNROLL
    for (int pair = 0; pair < Config::kStageSteps / 2; ++pair) {
      const int rows = lane.lane() / 16 < steps - 2 * pair ? rows_ : 0;
      const int column = (ahead + 2 * pair) * kStepCols;
      const uint16_t* row = next_[0] + column;
      GLYD_UNROLL
      for (int tile = 0; tile < Config::kTiles; ++tile, row += stride_, to += 512) {
        const uint16_t* from = kGather ? next_[kGather ? tile : 0] + column : row;
        if constexpr (kAligned) {
          lane.template CopyAsyncIf<16>(rows > 8 * tile, to, from);
        } else if (rows > 8 * tile) {
          simt::U4 v = {};
          for (int j = 0; j < 8; ++j) v.v[j / 2] |= uint32_t{lane.Load(from + j)} << 16 * (j % 2);
          lane.SharedStore(reinterpret_cast<simt::U4*>(to), v);
        }
      }
    }
  }
  GLYD_DEVICE void Advance(int steps) {
    GLYD_UNROLL
    for (int tile = 0; tile < kPointers; ++tile) next_[tile] += steps * kStepCols;
  }

 private:
  static constexpr int kPointers = kGather ? Config::kTiles : 1;

  int rows_;        // that follow this lane's first, itself too
  int64_t stride_;  // numbers between rows that are 8 apart
  const uint16_t* next_[kPointers];
};

template <typename Reader, typename Config, typename Lane>
GLYD_DEVICE void ZeroX(const Lane& lane, uint8_t* stages) {
  constexpr int kXBytes = Config::kStageSteps * 256 * Config::kTiles;
  for (int s = 0; s < Config::kStages; ++s)
    for (int at = 0; at < kXBytes; at += 512)
      lane.SharedStore(
          reinterpret_cast<simt::U4*>(stages + (s + 1) * kStepStageBytes<Reader, Config> - kXBytes +
                                      at + 16 * lane.lane()),
          simt::U4{});
  lane.SyncWarp();  // before any copy
}

// Adds steps [first, first + count) of a row block to `sum`; `x` has begun at the column of the
// first.
template <typename Reader, typename Config, typename X, typename Lane>
GLYD_DEVICE void MultiplySteps(const Lane& lane, const DevicePack& pack, X x, int64_t first,
                               int count, uint8_t* stages, const uint8_t* tables,
                               float (&sum)[4][Config::kTiles][4]) {
  constexpr int kBytes = kStepStageBytes<Reader, Config>, kSteps = Config::kStageSteps;
  constexpr int kStages = Config::kStages, kAhead = kStages - 1;
  const Scratch scratch = {stages + kStages * kBytes,
                           stages + kStages * kBytes + Reader::kBlockBytes};
  Reader reader;
  reader.Begin(lane, pack, first, count);
  // `steps` of the run from i on, by the stage of a slot.
  const auto issue = [&](int i, int ahead, int steps, int slot) {
    uint8_t* stage = stages + slot * kBytes;
    GLYD_UNROLL
    for (int s = 0; s < kSteps; ++s)
      if (s < steps) reader.Issue(lane, pack, i + s, ahead + s, stage + s * Reader::kStageBytes);
    x.Issue(lane, ahead, steps, stage + kSteps * Reader::kStageBytes);
  };
  const auto advance = [&](int steps) {
    reader.Advance(steps);
    x.Advance(steps);
  };
  uint32_t b[4];  // of x: one tile of two steps, or two tiles of one
  const auto multiply_step = [&](int s, const uint8_t* tiles, const uint32_t(&w)[16]) {
    GLYD_UNROLL
    for (int t = 0; t < Config::kTiles; ++t) {
      const uint8_t* tile = tiles + 512 * (s / 2 * Config::kTiles + t);
      int k = 2 * (s % 2);
      if constexpr (Config::kTiles == 1) {
        if (s % 2 == 0) lane.LoadMatrices(tile + 16 * lane.lane(), b);
      } else {
        if (t % 2 == 0)
          lane.LoadMatrices(
              tile + 512 * (lane.lane() / 16) + 256 * (s % 2) + 16 * (lane.lane() % 16), b);
        k = 2 * (t % 2);
      }
      const uint32_t two[2] = {b[k], b[k + 1]};
      GLYD_UNROLL
      for (int p = 0; p < 4; ++p) {
        const uint32_t rows[4] = {w[4 * p], w[4 * p + 2], w[4 * p + 1], w[4 * p + 3]};
        lane.Mma(sum[p][t], rows, two);
      }
    }
  };
  // Exceptions are looked for in two steps at once where registers allow it: half the branches.
  constexpr int kTogether = Reader::kUnroll && Config::kTiles <= 2 ? 2 : 1;
  const auto multiply = [&](int i, int ahead, int steps, int slot) {
    const uint8_t* stage = stages + slot * kBytes;
    GLYD_UNROLL
    for (int first = 0; first < kSteps; first += kTogether) {
      if (first >= steps) break;
      uint32_t w[kTogether][16];
      GLYD_UNROLL
      for (int t = 0; t < kTogether; ++t)
        if (first + t < steps)
          reader.Decode(lane, pack, i + first + t, stage + (first + t) * Reader::kStageBytes,
                        scratch, tables, w[t]);
      if (reader.NeedsPatch(ahead + first, kTogether)) {
        GLYD_UNROLL
        for (int t = 0; t < kTogether; ++t)
          if (first + t < steps) reader.Patch(lane, i + first + t, w[t]);
      }
      GLYD_UNROLL
      for (int t = 0; t < kTogether; ++t)
        if (first + t < steps) multiply_step(first + t, stage + kSteps * Reader::kStageBytes, w[t]);
    }
  };
  const auto left = [count](int i) { return count - i < kSteps ? count - i : kSteps; };
  GLYD_UNROLL
  for (int s = 0; s < kAhead; ++s) {
    if (kSteps * s < count) issue(kSteps * s, kSteps * s, left(kSteps * s), s);
    lane.CommitCopies();
  }
  advance(kSteps * kAhead);
  int i = 0;
  // Whole turns of the stages, so that their addresses are constants.
  for (; Reader::kUnroll && X::kAligned && i + kSteps * (kAhead + kStages) <= count;
       i += kSteps * kStages) {
    GLYD_UNROLL
    for (int s = 0; s < kStages; ++s) {
      lane.template WaitCopies<kAhead - 1>();
      lane.SyncWarp();  // publishes stage s, frees the one before
      issue(i + kSteps * (s + kAhead), kSteps * s, kSteps, (s + kAhead) % kStages);
      lane.CommitCopies();
      multiply(i + kSteps * s, kSteps * s, kSteps, s);
    }
    advance(kSteps * kStages);
    reader.Decoded(kSteps * kStages);
  }
  for (int slot = 0; i < count; i += kSteps) {
    lane.template WaitCopies<kAhead - 1>();
    lane.SyncWarp();
    const int next = i + kSteps * kAhead;
    if (next < count) issue(next, 0, left(next), slot == 0 ? kAhead : slot - 1);
    lane.CommitCopies();
    advance(kSteps);
    multiply(i, 0, left(i), slot);
    reader.Decoded(kSteps);
    slot = slot == kAhead ? 0 : slot + 1;
  }
  lane.template WaitCopies<0>();
  lane.SyncWarp();  // the stages are free
}

// Calls f(row of x, row of the row block, sum over the block's warps) for each of `rows` x 64, by
// one thread each, always the same one.
template <typename Reader, typename Config, typename F, typename Lane>
GLYD_DEVICE void SumWarps(const Lane& lane, uint8_t* shared, int rows,
                          const float (&sum)[4][Config::kTiles][4], const F& f) {
  const int l = lane.lane(), g = l / 4, t = l % 4;
  auto* sums = reinterpret_cast<float*>(shared + Reader::kTableBytes + 16);
  lane.SyncBlock();  // every warp's stages are free
  GLYD_UNROLL
  for (int tile = 0; tile < Config::kTiles; ++tile) {
    float* to = sums + lane.warp() * 8 * kSumRow;
    GLYD_UNROLL
    for (int p = 0; p < 4; ++p)
      for (int r = 0; r < 4; ++r)
        lane.SharedStore(to + (2 * t + r % 2) * kSumRow + 16 * p + g + r / 2 * 8, sum[p][tile][r]);
    lane.SyncBlock();  // publishes the warps' sums
    for (int e = lane.thread(); e < 8 * kStepRows; e += Config::kWarps * simt::kWarp) {
      const int m = 8 * tile + e / kStepRows, row = e % kStepRows;
      if (m >= rows) break;
      float all = 0;
      for (int w = 0; w < Config::kWarps; ++w)
        all += lane.SharedLoad(sums + (w * 8 + e / kStepRows) * kSumRow + row);
      f(m, row, all);
    }
    lane.SyncBlock();  // frees them
  }
}

template <typename Lane>
GLYD_DEVICE void Finish(const Lane& lane, const StepArgs& a, int64_t m, int64_t row, float sum) {
  if (a.bias != nullptr) sum += simt::Bf16ToFloat(lane.Load(a.bias + row));
  lane.Store(a.y + m * a.row_blocks * kStepRows + row, simt::FloatToBf16(sum));
}

// A segment's end: the warps' sums become the row block's, or a partial one.
template <typename Reader, typename Config, typename Lane>
GLYD_DEVICE void EndSegment(const Lane& lane, const StepArgs& a, int64_t row_block, int64_t first,
                            int64_t last, int64_t own_first, uint8_t* shared,
                            float (&sum)[4][Config::kTiles][4]) {
  const int64_t steps = a.row_blocks * a.pack.row_steps, grid = lane.grid_x();
  const bool whole = last - first == a.pack.row_steps;
  float* out = a.partial + (2 * int64_t{lane.block_x()} + (first != own_first)) * a.m * kStepRows;
  SumWarps<Reader, Config>(lane, shared, static_cast<int>(a.m), sum,
                           [&](int m, int row, float all) {
                             if (whole)
                               Finish(lane, a, m, row_block * kStepRows + row, all);
                             else
                               lane.Store(out + m * kStepRows + row, all);
                           });
  if (whole) return;

  const int64_t from = BlockOfStep(steps, grid, row_block * a.pack.row_steps);
  const int64_t to = BlockOfStep(steps, grid, (row_block + 1) * a.pack.row_steps - 1);
  auto* came = reinterpret_cast<int*>(shared + Reader::kTableBytes);
  if (lane.thread() == 0) {
    lane.Fence();  // with the barrier before it: this block's partial sums come before its count
    lane.SharedStore(came, lane.AtomicAdd(a.done + row_block, 1));
  }
  lane.SyncBlock();  // publishes `came`
  if (lane.SharedLoad(came) != to - from) return;
  lane.Fence();
  for (int64_t e = lane.thread(); e < a.m * kStepRows; e += Config::kWarps * simt::kWarp) {
    float all = 0;
    for (int64_t c = from; c <= to; ++c) {
      const int64_t slot = 2 * c + (FirstStep(steps, grid, c) < row_block * a.pack.row_steps);
      all += lane.LoadFresh(a.partial + slot * a.m * kStepRows + e);
    }
    Finish(lane, a, e / kStepRows, row_block * kStepRows + e % kStepRows, all);
  }
  if (lane.thread() == 0) lane.Store(a.done + row_block, 0);
}

template <typename Reader, typename Config, typename Lane>
GLYD_DEVICE void StepBody(const Lane& lane, uint8_t* shared, const StepArgs& a) {
  uint8_t* stages =
      shared + Reader::kTableBytes + 16 + lane.warp() * kStepWarpBytes<Reader, Config>;
  Reader::MakeTables(lane, a.pack, shared);
  lane.SyncBlock();  // publishes the tables
  const bool aligned = (reinterpret_cast<uintptr_t>(a.x) & 15) == 0;
  const int64_t steps = a.row_blocks * a.pack.row_steps;
  const int64_t own_first = FirstStep(steps, lane.grid_x(), lane.block_x());
  const int64_t own_end = FirstStep(steps, lane.grid_x(), lane.block_x() + int64_t{1});
  for (int64_t first = own_first; first < own_end;) {
    const int64_t row_block = first / a.pack.row_steps,
                  row_end = (row_block + 1) * a.pack.row_steps;
    const int64_t last = row_end < own_end ? row_end : own_end;
    float sum[4][Config::kTiles][4] = {};
    ZeroX<Reader, Config>(lane, stages);
    const int64_t end = first + (last - first) * (lane.warp() + 1) / Config::kWarps;
    for (int64_t s = first + (last - first) * lane.warp() / Config::kWarps; s < end;
         s += kRunSteps) {
      const int count = end - s < kRunSteps ? static_cast<int>(end - s) : kRunSteps;
      const auto multiply = [&](auto x) {
        x.Begin(lane, a.x, a.pack.row_steps * kStepCols, static_cast<int>(a.m),
                s - row_block * a.pack.row_steps, [](int row) { return int64_t{row}; });
        MultiplySteps<Reader, Config>(lane, a.pack, x, s, count, stages, shared, sum);
      };
      if (aligned)
        multiply(XReader<Config, true, false, Lane>());
      else
        multiply(XReader<Config, false, false, Lane>());
    }
    EndSegment<Reader, Config>(lane, a, row_block, first, last, own_first, shared, sum);
    first = last;
  }
}

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_LINEAR_STEP_BODY_H_
