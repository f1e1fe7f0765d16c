#ifndef GLYD_KERNELS_LINEAR_LINEAR_H_
#define GLYD_KERNELS_LINEAR_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/format/pack.h"

namespace glyd {

// One product, y = x W^T + bias: x [M, K] and y [M, O] bf16, row-major, contiguous; W [O, K] the pack.
struct LinearArgs {
  PackView pack;                   // has passed CheckPack
  const uint16_t* x = nullptr;     // M * K
  uint64_t m = 0;                  // rows of x; 0 is a product with nothing to do
  const uint16_t* bias = nullptr;  // O, or null
  uint16_t* y = nullptr;           // M * O; overlaps neither x nor the pack
};

// On the CPU, with `threads` threads (1 at least). Sums are fp32, over k in a fixed order, then the bias is added in
// fp32, then rounded to bf16 to nearest even: a row's bits depend on W, its x row and bias alone, not on M, threads
// or the CPU's features. InvalidArgument for null pointers with M > 0.
absl::Status LinearOnHost(const LinearArgs& args, int threads);

}  // namespace glyd

#endif  // GLYD_KERNELS_LINEAR_LINEAR_H_
