#include "kernels/cuda/kernel_list.h"
#include "kernels/cuda/lane.h"

namespace glyd::gpu {
namespace {
using Lane = CudaLane;
}

#define GLYD_GLOBAL(name, Args, threads, shared_bytes, ...)                                          \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Args args) {    \
    extern __shared__ __align__(1024) uint8_t shared[];                                              \
    __VA_ARGS__(CudaLane{}, shared, args);                                                           \
  }
GLYD_KERNELS(GLYD_GLOBAL)
#undef GLYD_GLOBAL

}  // namespace glyd::gpu
