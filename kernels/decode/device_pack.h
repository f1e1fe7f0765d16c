#ifndef GLYD_KERNELS_DECODE_DEVICE_PACK_H_
#define GLYD_KERNELS_DECODE_DEVICE_PACK_H_

#include <cstdint>

namespace glyd::gpu {

// A pack in device memory, as kernels take it (docs/format.md; it has passed CheckPack). Trivially
// copyable.
struct DevicePack {
  const uint8_t* data;  // 16-byte aligned
  const uint8_t* side;  // mma: blocks; mma12: exc, 4-byte aligned
  const int32_t* base;  // steps + 1
  uint32_t codes[3];    // mma: tiers; mma12: hb in each byte of the first
  int64_t row_steps;    // warp steps a row block: K / 16
};

// Steps that a reader takes in one run: what two registers a lane hold the bases of.
inline constexpr int kRunSteps = 64;

// Shared memory of a warp that a reader works in: its kBlockBytes, 16-byte aligned, and its
// kLanesBytes.
struct Scratch {
  uint8_t *block, *lanes;
};

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_DECODE_DEVICE_PACK_H_
