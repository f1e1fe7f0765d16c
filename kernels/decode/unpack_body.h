#ifndef GLYD_KERNELS_DECODE_UNPACK_BODY_H_
#define GLYD_KERNELS_DECODE_UNPACK_BODY_H_

#include "kernels/decode/device_pack.h"
#include "kernels/format/step.h"
#include "kernels/simt/simt.h"

namespace glyd::gpu {

// Rows [row0, row0 + rows) of W, row-major, to `out` [rows, K].
struct UnpackArgs {
  DevicePack pack;
  int64_t row0, rows;
  uint16_t* out;
  // Of a stack of experts, where `plan` is not null: row0 is 0, and only the row blocks of experts
  // that the plan (kernels/linear/moe_body.h) hits are written, expert_blocks each.
  const int32_t* plan = nullptr;
  int64_t expert_blocks = 0;
};

// A warp decodes a tile of 64 rows by up to 64 columns, four steps of a row block, into shared
// memory, and writes it row by row: full 128-byte lines. It goes through runs of kUnpackRun steps,
// its copies three steps ahead.
//
//   shared, a warp:  kStages stages of the reader | its scratch | the tile, 64 rows of 144 bytes
//   shared, a block: the reader's tables
//
// A lane's word of the tile is in bank 4 g + t while writing and eight lanes read a row: neither
// meets a bank twice.
inline constexpr int kUnpackWarps = 4;
inline constexpr int kUnpackStages = 4;
inline constexpr int kUnpackRun = 16;
inline constexpr int kTileSteps = 4;
inline constexpr int kTileRowBytes = kTileSteps * kStepCols * 2 + 16;

template <typename Reader>
inline constexpr int kUnpackWarpBytes = kUnpackStages* Reader::kStageBytes + Reader::kBlockBytes +
                                        Reader::kLanesBytes + kStepRows* kTileRowBytes;
template <typename Reader>
inline constexpr int kUnpackSharedBytes =
    Reader::kTableBytes + kUnpackWarps* kUnpackWarpBytes<Reader>;
// Runs of work: a warp takes one after another, as many warps later as there are.
GLYD_DEVICE int64_t UnpackRunsARowBlock(int64_t row_steps) {
  return (row_steps + kUnpackRun - 1) / kUnpackRun;
}

template <typename Reader, typename Lane>
GLYD_DEVICE void UnpackBody(const Lane& lane, uint8_t* shared, const UnpackArgs& a) {
  const uint8_t* tables = shared;
  uint8_t* stages = shared + Reader::kTableBytes + lane.warp() * kUnpackWarpBytes<Reader>;
  uint8_t* const block_scratch = stages + kUnpackStages * Reader::kStageBytes;
  const Scratch scratch = {block_scratch, block_scratch + Reader::kBlockBytes};
  uint8_t* tile = scratch.lanes + Reader::kLanesBytes;
  const int l = lane.lane(), g = l / 4, t = l % 4;
  Reader::MakeTables(lane, a.pack, shared);
  lane.SyncBlock();  // publishes the tables

  const int64_t row_bytes = a.pack.row_steps * kStepCols * 2;
  const bool aligned = (reinterpret_cast<uintptr_t>(a.out) & 15) == 0;
  const int64_t first_block = a.row0 / kStepRows;
  const int64_t blocks = a.plan != nullptr
                             ? int64_t{lane.Load(a.plan)} * a.expert_blocks
                             : (a.row0 + a.rows + kStepRows - 1) / kStepRows - first_block;
  const int64_t runs = UnpackRunsARowBlock(a.pack.row_steps);
  const int64_t warps = int64_t{lane.grid_x()} * kUnpackWarps;
  Reader reader;
  for (int64_t run = int64_t{lane.block_x()} * kUnpackWarps + lane.warp(); run < blocks * runs;
       run += warps) {
    int64_t block = first_block + run / runs;
    if (a.plan != nullptr)
      block = lane.Load(a.plan + 2 + block / a.expert_blocks) * a.expert_blocks +
              block % a.expert_blocks;
    const int64_t step0 = run % runs * kUnpackRun;
    const int64_t left = a.pack.row_steps - step0;
    const int count = left < kUnpackRun ? static_cast<int>(left) : kUnpackRun;
    reader.Begin(lane, a.pack, block * a.pack.row_steps + step0, count);
    for (int i = 0; i < kUnpackStages - 1; ++i) {
      if (i < count) reader.Issue(lane, a.pack, i, i, stages + i * Reader::kStageBytes);
      lane.CommitCopies();
    }
    reader.Advance(kUnpackStages - 1);
    for (int i = 0; i < count; ++i) {
      lane.template WaitCopies<kUnpackStages - 2>();
      lane.SyncWarp();  // publishes stage i; stage i - 1 and the tile's last reading are done with
      const int next = i + kUnpackStages - 1;
      if (next < count)
        reader.Issue(lane, a.pack, next, 0, stages + next % kUnpackStages * Reader::kStageBytes);
      lane.CommitCopies();
      reader.Advance(1);
      uint32_t w[16];
      reader.Decode(lane, a.pack, i, stages + i % kUnpackStages * Reader::kStageBytes, scratch,
                    tables, w);
      if (reader.NeedsPatch(0, 1)) reader.Patch(lane, i, w);
      reader.Decoded(1);
      uint8_t* to = tile + g * kTileRowBytes + i % kTileSteps * kStepCols * 2 + 4 * t;
      GLYD_UNROLL
      for (int r = 0; r < 16; ++r)
        lane.SharedStore(reinterpret_cast<uint32_t*>(to + r / 2 * 8 * kTileRowBytes + r % 2 * 16),
                         w[r]);
      if (i % kTileSteps != kTileSteps - 1 && i != count - 1) continue;

      lane.SyncWarp();  // publishes the tile
      const int chunk = l % 8;
      const bool inside = chunk < 2 * (i % kTileSteps + 1);
      const int64_t at_column = (step0 + i / kTileSteps * kTileSteps) * kStepCols * 2 + 16 * chunk;
      for (int r = l / 8; r < kStepRows; r += 4) {
        const int64_t row = block * kStepRows + r - a.row0;
        if (!inside || row < 0 || row >= a.rows) continue;
        const simt::U4 v = lane.SharedLoad(
            reinterpret_cast<const simt::U4*>(tile + r * kTileRowBytes + 16 * chunk));
        uint16_t* out = a.out + (row * row_bytes + at_column) / 2;
        if (aligned)
          lane.Store(reinterpret_cast<simt::U4*>(out), v);
        else
          for (int j = 0; j < 8; ++j)
            lane.Store(out + j, static_cast<uint16_t>(v.v[j / 2] >> 16 * (j % 2)));
      }
    }
    lane.template WaitCopies<0>();
    lane.SyncWarp();  // the stages and the tile are free
  }
}

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_DECODE_UNPACK_BODY_H_
