#ifndef GLYD_KERNELS_DECODE_RUN_H_
#define GLYD_KERNELS_DECODE_RUN_H_

#include "kernels/decode/device_pack.h"
#include "kernels/simt/simt.h"

namespace glyd::gpu {

// The bases of a run of at most kRunSteps steps, two a lane: read once, then asked by shuffles. All
// lanes of the warp call each member together, with the same arguments.
template <typename Lane>
struct RunBases {
  int32_t start[2], end[2];  // of steps lane and 32 + lane

  GLYD_DEVICE void Load(const Lane& lane, const int32_t* base, int count) {
    for (int h = 0; h < 2; ++h) {
      const int i = 32 * h + lane.lane();
      start[h] = i < count ? lane.Load(base + i) : 0;
      end[h] = i < count ? lane.Load(base + i + 1) : 0;
    }
  }
  GLYD_DEVICE int32_t Start(const Lane& lane, int i) const {
    return static_cast<int32_t>(lane.Shuffle(simt::kAllLanes, i < 32 ? start[0] : start[1], i));
  }
  GLYD_DEVICE int32_t End(const Lane& lane, int i) const {
    return static_cast<int32_t>(lane.Shuffle(simt::kAllLanes, i < 32 ? end[0] : end[1], i));
  }
};

// The sum of `v` over the lanes below this one.
template <typename Lane>
GLYD_DEVICE uint32_t ExclusiveScan(const Lane& lane, uint32_t v) {
  uint32_t sum = v;
  GLYD_UNROLL
  for (int d = 1; d < simt::kWarp; d *= 2) {
    const uint32_t below = lane.ShuffleUp(simt::kAllLanes, sum, d);
    if (lane.lane() >= d) sum += below;
  }
  return sum - v;
}

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_DECODE_RUN_H_
