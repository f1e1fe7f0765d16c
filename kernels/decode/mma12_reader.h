#ifndef GLYD_KERNELS_DECODE_MMA12_READER_H_
#define GLYD_KERNELS_DECODE_MMA12_READER_H_

#include "kernels/decode/run.h"
#include "kernels/format/step.h"

namespace glyd::gpu {

// A warp's way through steps of layout mma12.
//
//   a stage, 1536 bytes:  codes, 16 a lane | low bytes of weights 0-15, 16 a lane | of 16-31, 16 a
//   lane
//
// Each lane copies what it reads itself, so a stage needs no barrier. The bytes that exceptions
// change are flipped in registers: exceptions come in the order of their place, about one in two
// steps of a model's matrix, and the whole warp branches to the register that one is in.
template <typename Lane>
class Mma12Reader {
 public:
  static constexpr int kStageBytes = kMma12StepBytes;
  static constexpr int kBlockBytes = 0, kLanesBytes = 0;  // of Scratch, a warp
  static constexpr int kTableBytes = 0;                   // a block of threads
  static constexpr bool kUnroll =
      true;  // a loop over steps, so that its stages' addresses are constants

  static GLYD_DEVICE void MakeTables(const Lane&, const DevicePack&, uint8_t*) {}

  // A run of `count` steps (1 to kRunSteps) from `first` on: Decode is called for each in order.
  GLYD_DEVICE void Begin(const Lane& lane, const DevicePack& pack, int64_t first, int count) {
    next_ = pack.data + first * kMma12StepBytes + 16 * lane.lane();
    hb_ = simt::Keep(pack.codes[0]);
    bases_.Load(lane, pack.base + first, count);
    first_exception_ = bases_.Start(lane, 0);
    exceptions_ = reinterpret_cast<const uint32_t*>(pack.side) + first_exception_;
    const int have = bases_.End(lane, count - 1) - first_exception_;
    for (int h = 0; h < 2; ++h) {
      some_[h] = lane.Ballot(simt::kAllLanes, bases_.end[h] != bases_.start[h]);
      const int k = 32 * h + lane.lane();
      ahead_[h] = k < have ? lane.Load(exceptions_ + k) : 0;
    }
  }

  // Starts the copy of step i, which is `ahead` of those that Advance has passed; the caller
  // commits.
  GLYD_DEVICE void Issue(const Lane& lane, const DevicePack&, int, int ahead,
                         uint8_t* stage) const {
    uint8_t* to = stage + 16 * lane.lane();
    const uint8_t* from = next_ + ahead * kMma12StepBytes;
    GLYD_UNROLL
    for (int part = 0; part < 3; ++part)
      lane.template CopyAsync<16>(to + 512 * part, from + 512 * part);
  }
  GLYD_DEVICE void Advance(int steps) { next_ += steps * kMma12StepBytes; }

  // The 32 weights of this lane as coded, w[2n] those of j 0 and 1, w[2n + 1] of 2 and 3
  // (kernels/format/step.h). Step i is the `ahead`th, less than 32, of those that Decoded has not
  // yet been told of.
  GLYD_DEVICE void Decode(const Lane& lane, const DevicePack&, int, const uint8_t* stage,
                          const Scratch&, const uint8_t*, uint32_t (&w)[16]) const {
    const auto* own = reinterpret_cast<const simt::U4*>(stage + 16 * lane.lane());
    const simt::U4 codes = lane.SharedLoad(own);
    simt::U4 low[2];
    for (int h = 0; h < 2; ++h) low[h] = lane.SharedLoad(own + 32 * (h + 1));
    GLYD_UNROLL
    for (int n = 0; n < 8; ++n) {
      const uint32_t c = n % 2 == 0 ? codes.v[n / 2] : simt::RotateLeft(codes.v[n / 2], 4);
      const uint32_t high = (c & 0x87878787u) + hb_;
      w[2 * n] = simt::Permute(low[n / 4].v[n % 4], high, 0x5140);
      w[2 * n + 1] = simt::Permute(low[n / 4].v[n % 4], high, 0x7362);
    }
  }
  // Whether any of `steps` steps from `ahead` on has exceptions, the same for all lanes; then Patch
  // is called for each.
  GLYD_DEVICE bool NeedsPatch(int ahead, int steps) const {
    return (some_[0] >> ahead & ((1u << steps) - 1)) != 0;
  }
  GLYD_DEVICE void Decoded(int steps) {
    some_[0] = simt::FunnelRight(some_[0], some_[1], steps);
    some_[1] >>= steps;
  }

  GLYD_DEVICE void Patch(const Lane& lane, int i, uint32_t (&w)[16]) const {
    const int last = bases_.End(lane, i) - first_exception_;
    for (int k = bases_.Start(lane, i) - first_exception_; k < last; ++k) {
      const uint32_t e = k < 64 ? lane.Shuffle(simt::kAllLanes, k < 32 ? ahead_[0] : ahead_[1], k)
                                : lane.Load(exceptions_ + k);
      const uint32_t flip =
          static_cast<int>(e >> 5 & 31) == lane.lane() ? (e >> 16 & 0xFF) << (e & 1 ? 24 : 8) : 0;
      switch (e >> 1 & 15) {
#define GLYD_CASE(r) \
  case r:            \
    w[r] ^= flip;    \
    break;
        GLYD_CASE(0)
        GLYD_CASE(1)
        GLYD_CASE(2)
        GLYD_CASE(3)
        GLYD_CASE(4)
        GLYD_CASE(5)
        GLYD_CASE(6)
        GLYD_CASE(7)
        GLYD_CASE(8)
        GLYD_CASE(9)
        GLYD_CASE(10)
        GLYD_CASE(11)
        GLYD_CASE(12)
        GLYD_CASE(13)
        GLYD_CASE(14)
        GLYD_CASE(15)
#undef GLYD_CASE
      }
    }
  }

 private:
  const uint8_t* next_;  // to issue: of this lane
  uint32_t hb_;
  RunBases<Lane> bases_;
  int32_t first_exception_;
  const uint32_t* exceptions_;  // of the run
  uint32_t some_[2];            // bit k: the kth step that is left to decode has exceptions
  uint32_t ahead_[2];           // exceptions lane and 32 + lane of the run
};

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_DECODE_MMA12_READER_H_
