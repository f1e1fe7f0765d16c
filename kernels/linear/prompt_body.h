#ifndef GLYD_KERNELS_LINEAR_PROMPT_BODY_H_
#define GLYD_KERNELS_LINEAR_PROMPT_BODY_H_

#include "kernels/decode/device_pack.h"
#include "kernels/format/step.h"
#include "kernels/simt/simt.h"

namespace glyd::gpu {

// y = x W^T + bias for any M: x [M, K], 16-byte aligned, and y [M, O] bf16, row-major; bias [O] or
// null; K % 64 == 0.
struct PromptArgs {
  DevicePack pack;
  int64_t row_blocks;  // O / 64
  const uint16_t* x;
  int64_t m;
  const uint16_t* bias;
  uint16_t* y;
  int splits;      // of K, 1 to K / 64; the grid is PromptTiles * splits
  float* partial;  // [grid, 128, 128] where splits > 1
  int* done;       // [PromptTiles], zero before and after, where splits > 1
};

// A block of 8 warps has a tile of 128 rows of W (two row blocks) and 128 of x. K is cut into
// quarters that it goes through side by side: a stage is one step of each quarter of each row
// block, and each warp decodes one of the eight, into the registers of an mma's A side as all warps
// then read them. The pack is read once for 128 rows of x.
//
//                 x: 128 tokens = 4 warps x 4 tiles of 8
//   row block 0   warps 0 2 4 6   sums [4 pairs of 16 rows][4 tiles][4] a lane
//   row block 1   warps 1 3 5 7
//
//   shared: the reader's tables | 8 x kPromptStages stages of the reader | kPromptStages x 16 KB of
//   x: a quarter 4 KB,
//           a tile 256: columns 0-7, then 8-15 of 8 rows | 2 x 16 KB of weights: a step 2 KB, a
//           pair 512, a lane 16 | the reader's lanes
//   at the end, over the stages: y, 128 rows of 272 bytes
//
// One barrier a stage: it publishes x and the weights of stage i and frees those of i - 1.
inline constexpr int kPromptWarps = 8;
inline constexpr int kPromptStages = 2;
inline constexpr int kPromptTokens = 128;
inline constexpr int kPromptRows = 128;
inline constexpr int kPromptXBytes = 4 * 4096;       // a stage
inline constexpr int kPromptWeightBytes = 8 * 2048;  // a stage
inline constexpr int kPromptYRow = kPromptRows * 2 + 16;

template <typename Reader>
inline constexpr int kPromptSharedBytes =
    Reader::kTableBytes + kPromptStages*(kPromptWarps* Reader::kStageBytes + kPromptXBytes) +
    2 * kPromptWeightBytes + kPromptWarps* Reader::kLanesBytes;

GLYD_DEVICE int64_t PromptTokenTiles(int64_t m) { return (m + kPromptTokens - 1) / kPromptTokens; }
GLYD_DEVICE int64_t PromptTiles(int64_t row_blocks, int64_t m) {
  return (row_blocks + 1) / 2 * PromptTokenTiles(m);
}

template <typename Reader, typename Lane>
class PromptTile {
 public:
  GLYD_DEVICE PromptTile(const Lane& lane, uint8_t* shared, const PromptArgs& a)
      : lane_(lane), shared_(shared), a_(a) {
    const int64_t tile = lane.block_x() / a.splits;
    token0_ = tile % PromptTokenTiles(a.m) * kPromptTokens;
    row_block0_ = tile / PromptTokenTiles(a.m) * 2;
    quarter_ = a.pack.row_steps / 4;
    raw_ = shared + Reader::kTableBytes + lane.warp() * kPromptStages * Reader::kStageBytes;
    x_ = shared + Reader::kTableBytes + kPromptWarps * kPromptStages * Reader::kStageBytes;
    weights_ = x_ + kPromptStages * kPromptXBytes;
    lanes_ = weights_ + 2 * kPromptWeightBytes + lane.warp() * Reader::kLanesBytes;
    decodes_ = row_block0_ + lane.warp() / 4 < a.row_blocks;
    multiplies_ = row_block0_ + lane.warp() % 2 < a.row_blocks;
  }

  GLYD_DEVICE void Run() {
    Reader::MakeTables(lane_, a_.pack, shared_);
    const int64_t split = lane_.block_x() % a_.splits;
    const int64_t end = quarter_ * (split + 1) / a_.splits;
    // Rows past M are never copied.
    for (int s = 0; s < kPromptStages; ++s)
      for (int q = 0; q < 4; ++q)
        if (token0_ + Token() >= a_.m)
          lane_.SharedStore(reinterpret_cast<simt::U4*>(X(s, q)), simt::U4{});
    lane_.SyncBlock();  // publishes the tables, and zeros before any copy
    for (int64_t i = quarter_ * split / a_.splits; i < end; i += kRunSteps)
      Multiply(i, end - i < kRunSteps ? static_cast<int>(end - i) : kRunSteps);
    if (a_.splits == 1)
      WriteY();
    else
      WritePartial(split);
  }

 private:
  // Of x, as this thread copies it: row of the tile, and where it lies in stage `slot`.
  GLYD_DEVICE int Token() const { return lane_.thread() / 16 * 8 + lane_.thread() % 8; }
  GLYD_DEVICE uint8_t* X(int slot, int q) const {
    return x_ + slot * kPromptXBytes + q * 4096 + 16 * lane_.thread();
  }

  // Steps [first, first + count) of each quarter.
  GLYD_DEVICE void Multiply(int64_t first, int count) {
    constexpr int kAhead = kPromptStages - 1;
    Reader reader;
    const int warp = lane_.warp();
    if (decodes_)
      reader.Begin(lane_, a_.pack,
                   (row_block0_ + warp / 4) * a_.pack.row_steps + warp % 4 * quarter_ + first,
                   count);
    const bool there = token0_ + Token() < a_.m;
    const uint16_t* x = a_.x + (token0_ + (there ? Token() : 0)) * a_.pack.row_steps * kStepCols +
                        first * kStepCols + lane_.thread() % 16 / 8 * 8;
    const auto issue = [&](int i) {
      const int slot = i % kPromptStages;
      if (decodes_) reader.Issue(lane_, a_.pack, i, 0, raw_ + slot * Reader::kStageBytes);
      GLYD_UNROLL
      for (int q = 0; q < 4; ++q)
        lane_.template CopyAsyncIf<16>(there, X(slot, q), x + q * quarter_ * kStepCols);
      if (decodes_) reader.Advance(1);
      x += kStepCols;
    };
    for (int i = 0; i < kAhead; ++i) {
      if (i < count) issue(i);
      lane_.CommitCopies();
    }
    for (int i = 0; i < count; ++i) {
      lane_.template WaitCopies<kAhead - 1>();
      lane_.SyncWarp();  // publishes the warp's stage i
      uint8_t* weights = weights_ + i % 2 * kPromptWeightBytes;
      if (decodes_) {
        uint8_t* own = weights + 2048 * warp;
        uint32_t w[16];
        // A block too long for its window is put where the weights go later.
        reader.Decode(lane_, a_.pack, i, raw_ + i % kPromptStages * Reader::kStageBytes,
                      Scratch{own, lanes_}, shared_, w);
        if (reader.NeedsPatch(0, 1)) reader.Patch(lane_, i, w);
        reader.Decoded(1);
        lane_.SyncWarp();
        GLYD_UNROLL
        for (int p = 0; p < 4; ++p)
          lane_.SharedStore(reinterpret_cast<simt::U4*>(own + 512 * p + 16 * lane_.lane()),
                            simt::U4{{w[4 * p], w[4 * p + 2], w[4 * p + 1], w[4 * p + 3]}});
      }
      lane_.SyncBlock();
      if (i + kAhead < count) issue(i + kAhead);
      lane_.CommitCopies();
      if (multiplies_)
        MultiplyStage(weights + warp % 2 * 4 * 2048, x_ + i % kPromptStages * kPromptXBytes);
    }
    lane_.template WaitCopies<0>();
    lane_.SyncBlock();  // everything is free
  }

  GLYD_DEVICE void MultiplyStage(const uint8_t* weights, const uint8_t* x) {
    x += lane_.warp() / 2 * 1024 + 16 * lane_.lane();
    weights += 16 * lane_.lane();
    GLYD_UNROLL
    for (int q = 0; q < 4; ++q) {
      uint32_t b[2][4];
      for (int h = 0; h < 2; ++h) lane_.LoadMatrices(x + q * 4096 + 512 * h, b[h]);
      GLYD_UNROLL
      for (int p = 0; p < 4; ++p) {
        const simt::U4 rows =
            lane_.SharedLoad(reinterpret_cast<const simt::U4*>(weights + q * 2048 + 512 * p));
        GLYD_UNROLL
        for (int t = 0; t < 4; ++t) {
          const uint32_t two[2] = {b[t / 2][2 * (t % 2)], b[t / 2][2 * (t % 2) + 1]};
          lane_.Mma(sum_[p][t], rows.v, two);
        }
      }
    }
  }

  // Calls f(row of x, row of W, sum) of the tile for each sum of this lane.
  template <typename F>
  GLYD_DEVICE void ForEachSum(const F& f) const {
    const int g = lane_.lane() / 4, t0 = lane_.lane() % 4;
    GLYD_UNROLL
    for (int t = 0; t < 4; ++t) GLYD_UNROLL
    for (int p = 0; p < 4; ++p) GLYD_UNROLL
    for (int r = 0; r < 4; ++r)
      f(lane_.warp() / 2 * 32 + 8 * t + 2 * t0 + r % 2,
        lane_.warp() % 2 * kStepRows + 16 * p + g + r / 2 * 8, sum_[p][t][r]);
  }

  GLYD_DEVICE uint16_t Rounded(int64_t row, float sum) const {
    if (a_.bias != nullptr) sum += simt::Bf16ToFloat(lane_.Load(a_.bias + row));
    return simt::FloatToBf16(sum);
  }

  GLYD_DEVICE void WriteY() {
    uint8_t* tile = shared_ + Reader::kTableBytes;
    if (multiplies_)
      ForEachSum([&](int token, int row, float sum) {
        lane_.SharedStore(reinterpret_cast<uint16_t*>(tile + token * kPromptYRow + 2 * row),
                          Rounded(row_block0_ * kStepRows + row, sum));
      });
    lane_.SyncBlock();  // publishes y
    const int64_t rows = a_.row_blocks * kStepRows;
    for (int c = lane_.thread(); c < kPromptTokens * 16; c += kPromptWarps * simt::kWarp) {
      const int64_t token = token0_ + c / 16, row = row_block0_ * kStepRows + c % 16 * 8;
      if (token >= a_.m || row >= rows) continue;
      const simt::U4 v = lane_.SharedLoad(
          reinterpret_cast<const simt::U4*>(tile + c / 16 * kPromptYRow + c % 16 * 16));
      uint16_t* y = a_.y + token * rows + row;
      if ((reinterpret_cast<uintptr_t>(a_.y) & 15) == 0)
        lane_.Store(reinterpret_cast<simt::U4*>(y), v);
      else
        for (int j = 0; j < 8; ++j)
          lane_.Store(y + j, static_cast<uint16_t>(v.v[j / 2] >> 16 * (j % 2)));
    }
  }

  // The last block of a tile to come sums the parts in their order.
  GLYD_DEVICE void WritePartial(int64_t split) {
    const int64_t tile = lane_.block_x() / a_.splits;
    float* parts = a_.partial + tile * a_.splits * kPromptTokens * kPromptRows;
    float* own = parts + split * kPromptTokens * kPromptRows;
    if (multiplies_)
      ForEachSum([&](int token, int row, float sum) {
        if (token0_ + token < a_.m) lane_.Store(own + token * kPromptRows + row, sum);
      });
    lane_.SyncBlock();
    auto* came = reinterpret_cast<int*>(x_);
    if (lane_.thread() == 0) {
      lane_.Fence();  // with the barrier before it: the part comes before its count
      lane_.SharedStore(came, lane_.AtomicAdd(a_.done + tile, 1));
    }
    lane_.SyncBlock();  // publishes `came`
    if (lane_.SharedLoad(came) != a_.splits - 1) return;
    lane_.Fence();
    const int64_t rows = a_.row_blocks * kStepRows;
    for (int e = lane_.thread(); e < kPromptTokens * kPromptRows; e += kPromptWarps * simt::kWarp) {
      const int64_t token = token0_ + e / kPromptRows,
                    row = row_block0_ * kStepRows + e % kPromptRows;
      if (token >= a_.m || row >= rows) continue;
      float sum = 0;
      for (int s = 0; s < a_.splits; ++s)
        sum += lane_.LoadFresh(parts + s * kPromptTokens * kPromptRows + e);
      lane_.Store(a_.y + token * rows + row, Rounded(row, sum));
    }
    if (lane_.thread() == 0) lane_.Store(a_.done + tile, 0);
  }

  const Lane& lane_;
  uint8_t* const shared_;
  const PromptArgs& a_;
  int64_t token0_, row_block0_, quarter_;
  uint8_t *raw_, *x_, *weights_, *lanes_;
  bool decodes_, multiplies_;
  float sum_[4][4][4] = {};
};

template <typename Reader, typename Lane>
GLYD_DEVICE void PromptBody(const Lane& lane, uint8_t* shared, const PromptArgs& a) {
  PromptTile<Reader, Lane>(lane, shared, a).Run();
}

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_LINEAR_PROMPT_BODY_H_
