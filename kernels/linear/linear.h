#ifndef GLYD_KERNELS_LINEAR_LINEAR_H_
#define GLYD_KERNELS_LINEAR_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/format/pack.h"

namespace glyd {

// One product, y = x W^T + bias: x [M, K] and y [M, O] bf16, row-major, contiguous; W [O, K] the
// pack.
struct LinearArgs {
  PackView pack;                   // has passed CheckPack
  const uint16_t* x = nullptr;     // M * K
  uint64_t m = 0;                  // rows of x; 0 is a product with nothing to do
  const uint16_t* bias = nullptr;  // O, or null
  uint16_t* y = nullptr;           // M * O; overlaps neither x nor the pack
};

// On the CPU, with `threads` threads (1 at least). A row's bits depend on W, its x row and bias
// alone: not on M, threads, the CPU's features or the caller's floating-point modes. They are those
// of this arithmetic, all fp32, to nearest even: sum p (0-7) takes columns 2p and 2p + 1 of each 16
// in the order of k, each by a fused multiply-add; s = ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 +
// p7)); then the bias is added; then bf16, every NaN as 0x7FC0. InvalidArgument for null pointers
// with M > 0, and for sizes that no memory has.
absl::Status LinearOnHost(const LinearArgs& args, int threads);

}  // namespace glyd

#endif  // GLYD_KERNELS_LINEAR_LINEAR_H_
