#ifndef GLYD_KERNELS_DECODE_MMA_READER_H_
#define GLYD_KERNELS_DECODE_MMA_READER_H_

#include "kernels/decode/run.h"
#include "kernels/format/step.h"

namespace glyd::gpu {

// A warp's way through steps of layout mma.
//
//   a stage, 1536 bytes:    first digits, 256 | sign and mantissa, 1024 | window, 256: the step's
//   block, from
//                           the 16 bytes that hold its start on
//   scratch, a warp:        a block that the window is too short for, 1600 | a lane's escapes, 36
//   each tables, 2048 a block:   of a byte of first digits: for four weights, which of eight bytes
//   is the exponent
//                           (tier 0, then the lane's next four escapes), and above it the count of
//                           escapes | of a byte of second digits: the four exponents
//
// Escapes are in the order of the place, which is the lanes' order: a lane's are a run that a scan
// over the warp finds. Their exponents are laid out densely, four at a time by table, the few of
// deeper tiers are put over theirs, and one byte permute for four weights spreads them.
template <typename Lane>
class MmaReader {
 public:
  static constexpr int kWindowBytes = 256;
  static constexpr int kStageBytes = kMmaStepBytes + kWindowBytes;
  static constexpr int kBlockBytes = 1600;  // the longest block has 1536, at any alignment
  static constexpr int kLaneBytes =
      36;  // 32 escapes; an odd count of words, so that lanes meet no bank twice
  static constexpr int kLanesBytes = simt::kWarp * kLaneBytes;
  static constexpr int kTableBytes = 2 * 256 * 4;
  static constexpr bool kUnroll = false;

  // By all threads of the block; a barrier must follow.
  static GLYD_DEVICE void MakeTables(const Lane& lane, const DevicePack& pack, uint8_t* tables) {
    auto* spread = reinterpret_cast<uint32_t*>(tables);
    for (int b = lane.thread(); b < 256; b += lane.threads()) {
      uint32_t select = 0, escapes = 0, exponents = 0;
      for (int i = 0; i < 4; ++i) {
        const uint32_t digit = b >> 2 * i & 3;
        select |= (digit < 3 ? digit : 4 + escapes) << 4 * i;
        escapes += digit == 3;
        exponents |= (pack.codes[1] >> 8 * digit & 0xFF) << 8 * i;
      }
      lane.SharedStore(&spread[b], escapes << 16 | select);
      lane.SharedStore(&spread[256 + b], exponents);
    }
  }

  GLYD_DEVICE void Begin(const Lane& lane, const DevicePack& pack, int64_t first, int count) {
    next_ = pack.data + first * kMmaStepBytes + 16 * lane.lane();
    bases_.Load(lane, pack.base + first, count);
  }

  GLYD_DEVICE void Issue(const Lane& lane, const DevicePack& pack, int i, int ahead,
                         uint8_t* stage) const {
    const int l = lane.lane();
    const uint8_t* step = next_ + ahead * kMmaStepBytes;
    GLYD_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int part = kMmaDigitBytes + 512 * h;
      lane.template CopyAsync<16>(stage + part + 16 * l, step + part);
    }
    // Half a warp takes the digits, the other half the window.
    const uint8_t* end = pack.side + bases_.End(lane, i);
    const uint8_t* window = Aligned(pack.side + bases_.Start(lane, i)) + 16 * (l - 16);
    if (l < 16)
      lane.template CopyAsync<16>(stage + 16 * l, step);
    else if (window < end)
      lane.template CopyAsync<16>(stage + kMmaStepBytes + 16 * (l - 16), window);
  }
  GLYD_DEVICE void Advance(int steps) { next_ += steps * kMmaStepBytes; }
  GLYD_DEVICE bool NeedsPatch(int, int) const { return false; }
  GLYD_DEVICE void Patch(const Lane&, int, uint32_t (&)[16]) const {}
  GLYD_DEVICE void Decoded(int) {}

  GLYD_DEVICE void Decode(const Lane& lane, const DevicePack& pack, int i, const uint8_t* stage,
                          const Scratch& scratch, const uint8_t* tables, uint32_t (&w)[16]) const {
    const int l = lane.lane();
    const uint8_t* from = pack.side + bases_.Start(lane, i);
    const int size = static_cast<int>(pack.side + bases_.End(lane, i) - from);
    const int before = static_cast<int>(from - Aligned(from));
    const uint8_t* block = stage + kMmaStepBytes + before;
    if (before + size > kWindowBytes) {
      lane.SyncWarp();
      for (int at = 16 * l; at < before + size; at += 16 * simt::kWarp)
        lane.SharedStore(reinterpret_cast<simt::U4*>(scratch.block + at),
                         lane.Load(reinterpret_cast<const simt::U4*>(from - before + at)));
      lane.SyncWarp();
      block = scratch.block + before;
    }

    uint32_t digits[2];
    int escapes = 0;
    for (int h = 0; h < 2; ++h) {
      digits[h] = lane.SharedLoad(reinterpret_cast<const uint32_t*>(stage + 128 * h + 4 * l));
      escapes += simt::CountOnes(digits[h] & digits[h] >> 1 & 0x55555555u);
    }
    uint8_t* own = scratch.lanes + kLaneBytes * l;
    Escapes(lane, pack, block, size, escapes, own, tables);

    const auto* spread = reinterpret_cast<const uint32_t*>(tables);
    simt::U4 low[2];
    for (int h = 0; h < 2; ++h)
      low[h] = lane.SharedLoad(
          reinterpret_cast<const simt::U4*>(stage + kMmaDigitBytes + 512 * h + 16 * l));
    int at = 0;
    GLYD_UNROLL
    for (int n = 0; n < 8; ++n) {
      const uint32_t s = lane.SharedLoad(&spread[digits[n / 4] >> 8 * (n % 4) & 0xFF]);
      const int count = static_cast<int>(s >> 16);
      const auto* words = reinterpret_cast<const uint32_t*>(own + (at & ~3));
      const uint32_t a = count > 0 ? lane.SharedLoad(words) : 0;
      const uint32_t b = (at & 3) + count > 4 ? lane.SharedLoad(words + 1) : 0;
      const uint32_t exponents =
          simt::Permute(pack.codes[0], simt::FunnelRight(a, b, 8 * (at & 3)), s & 0xFFFF);
      at += count;
      // exponent, mantissa and the other's sign, twice: turned right by one, each has its own sign.
      w[2 * n] = simt::RotateRight(simt::Permute(low[n / 4].v[n % 4], exponents, 0x5140), 1);
      w[2 * n + 1] = simt::RotateRight(simt::Permute(low[n / 4].v[n % 4], exponents, 0x7362), 1);
    }
  }

 private:
  static GLYD_DEVICE const uint8_t* Aligned(const uint8_t* p) {
    return p - (reinterpret_cast<uintptr_t>(p) & 15);
  }

  // Four bytes of shared memory at any address.
  static GLYD_DEVICE uint32_t Word(const Lane& lane, const uint8_t* p) {
    const int skip = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
    const auto* words = reinterpret_cast<const uint32_t*>(p - skip);
    const uint32_t low = lane.SharedLoad(words);
    return skip == 0 ? low : simt::FunnelRight(low, lane.SharedLoad(words + 1), 8 * skip);
  }

  // Puts the exponents of this lane's escapes at own[0 .. escapes).
  static GLYD_DEVICE void Escapes(const Lane& lane, const DevicePack& pack, const uint8_t* block,
                                  int size, int escapes, uint8_t* own, const uint8_t* tables) {
    const int first = static_cast<int>(ExclusiveScan(lane, escapes));
    // Up to 32 second digits, which lie within three words laid back from the block's end.
    uint32_t words[3] = {};
    const int word = first >> 4, more = escapes > 0 ? ((first + escapes - 1) >> 4) - word : -1;
    for (int k = 0; k < 3; ++k)
      if (k <= more) words[k] = Word(lane, block + size - 4 * (word + k + 1));
    const uint32_t seconds[2] = {simt::FunnelRight(words[0], words[1], 2 * (first & 15)),
                                 simt::FunnelRight(words[1], words[2], 2 * (first & 15))};
    const auto* exponents = reinterpret_cast<const uint32_t*>(tables) + 256;
    for (int k = 0; k < escapes; k += 4) {
      const uint32_t four = (k < 16 ? seconds[0] : seconds[1]) >> 2 * (k & 15) & 0xFF;
      lane.SharedStore(reinterpret_cast<uint32_t*>(own + k), lane.SharedLoad(&exponents[four]));
    }

    // Bit 2k: escape k goes deeper than the second tier.
    uint32_t deep[2];
    int deeper = 0;
    for (int h = 0; h < 2; ++h) {
      const int here = escapes - 16 * h;
      const uint32_t there = here >= 16 ? 0x55555555u
                             : here > 0 ? 0x55555555u & ((1u << 2 * here) - 1)
                                        : 0;
      deep[h] = seconds[h] & seconds[h] >> 1 & there;
      deeper += simt::CountOnes(deep[h]);
    }
    if (lane.Ballot(simt::kAllLanes, deeper > 0) == 0) return;
    const int third = static_cast<int>(ExclusiveScan(lane, deeper));
    int plain = 0;
    for (int h = 0, k = third; h < 2; ++h)
      for (uint32_t m = deep[h]; m != 0; m &= m - 1, ++k) {
        const int digit = lane.SharedLoad(block + (k >> 2)) >> 2 * (k & 3) & 3;
        if (digit == 3) {
          ++plain;
          continue;
        }
        deep[h] ^= m & -m;
        lane.SharedStore(own + 16 * h + (simt::LowestOne(m) >> 1),
                         static_cast<uint8_t>(pack.codes[2] >> 8 * digit));
      }
    if (lane.Ballot(simt::kAllLanes, plain > 0) == 0) return;
    const int all =
        static_cast<int>(lane.Shuffle(simt::kAllLanes, third + deeper, simt::kWarp - 1));
    int at = ((all + 3) >> 2) + static_cast<int>(ExclusiveScan(lane, plain));
    for (int h = 0; h < 2; ++h)
      for (uint32_t m = deep[h]; m != 0; m &= m - 1)
        lane.SharedStore(own + 16 * h + (simt::LowestOne(m) >> 1), lane.SharedLoad(block + at++));
  }

  const uint8_t* next_;  // to issue: of this lane
  RunBases<Lane> bases_;
};

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_DECODE_MMA_READER_H_
