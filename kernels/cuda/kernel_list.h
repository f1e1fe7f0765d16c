#ifndef GLYD_KERNELS_CUDA_KERNEL_LIST_H_
#define GLYD_KERNELS_CUDA_KERNEL_LIST_H_

#include "kernels/decode/mma12_reader.h"
#include "kernels/decode/mma_reader.h"
#include "kernels/decode/unpack_body.h"
#include "kernels/linear/moe_body.h"
#include "kernels/linear/prompt_body.h"
#include "kernels/linear/step_body.h"

namespace glyd::gpu {

// Keeps a stream busy, for measurements.
struct HoldArgs {
  int64_t nanoseconds;
};
template <typename Lane>
GLYD_DEVICE void HoldBody(const Lane& lane, uint8_t*, const HoldArgs& a) {
  const uint64_t begin = lane.Nanoseconds();
  while (lane.Nanoseconds() - begin < static_cast<uint64_t>(a.nanoseconds)) {
  }
}

}  // namespace glyd::gpu

// Every kernel, once: X(name, arguments, threads a block, bytes of shared memory a block, body).
// `Lane` is the GPU's or the emulator's; the list is expanded to __global__ functions, to the
// emulator's table, and to the names and sizes that a launch needs.
#define GLYD_KERNELS(X)                                                        \
  X(glyd_hold, HoldArgs, 32, 0, HoldBody)                                      \
  X(glyd_moe_route, RouteArgs, kRouteWarps * 32, kRouteSharedBytes, RouteBody) \
  X(glyd_moe_combine, CombineArgs, kCombineThreads, 0, CombineBody)            \
  GLYD_LAYOUT_KERNELS(X, mma, MmaReader<Lane>)                                 \
  GLYD_LAYOUT_KERNELS(X, mma12, Mma12Reader<Lane>)

#define GLYD_LAYOUT_KERNELS(X, layout, Reader)                                         \
  X(glyd_##layout##_unpack, UnpackArgs, kUnpackWarps * 32, kUnpackSharedBytes<Reader>, \
    UnpackBody<Reader>)                                                                \
  X(glyd_##layout##_prompt, PromptArgs, kPromptWarps * 32, kPromptSharedBytes<Reader>, \
    PromptBody<Reader>)                                                                \
  GLYD_MOE_KERNEL(X, layout, Reader, 1)                                                \
  GLYD_MOE_KERNEL(X, layout, Reader, 4)                                                \
  GLYD_STEP_KERNEL(X, layout, Reader, 1)                                               \
  GLYD_STEP_KERNEL(X, layout, Reader, 2)                                               \
  GLYD_STEP_KERNEL(X, layout, Reader, 4)                                               \
  GLYD_STEP_KERNEL(X, layout, Reader, 8)

#define GLYD_MOE_KERNEL(X, layout, Reader, tiles)                        \
  X(glyd_##layout##_moe##tiles, MoeArgs, StepConfig<tiles>::kWarps * 32, \
    (kMoeSharedBytes<Reader, StepConfig<tiles>>), MoeBody<Reader, StepConfig<tiles>>)

#define GLYD_STEP_KERNEL(X, layout, Reader, tiles)                         \
  X(glyd_##layout##_step##tiles, StepArgs, StepConfig<tiles>::kWarps * 32, \
    (kStepSharedBytes<Reader, StepConfig<tiles>>), StepBody<Reader, StepConfig<tiles>>)

#endif  // GLYD_KERNELS_CUDA_KERNEL_LIST_H_
