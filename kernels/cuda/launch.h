#ifndef GLYD_KERNELS_CUDA_LAUNCH_H_
#define GLYD_KERNELS_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/decode/unpack_body.h"
#include "kernels/device/cuda/driver_table.h"
#include "kernels/format/step.h"
#include "kernels/linear/moe_body.h"
#include "kernels/linear/prompt_body.h"
#include "kernels/linear/step_body.h"

// Our kernels on a GPU. Each call queues work on `stream`, which belongs to the current context,
// and returns; it neither allocates nor waits, but for the first one in a context, which loads the
// kernels (Prepare does that alone). Thread-safe. kNotSupported: a GPU before compute
// capability 8.0, or a build without CUDA kernels.

namespace glyd::gpu {

// The kernels of this build for all GPUs, a fatbin; no bytes where it was built without nvcc.
struct CudaImage {
  const void* data;
  size_t bytes;
  int cuda_version;  // of the nvcc: 13000 is 13.0; 0: none
};
CudaImage Image();

// Loads the kernels into the current context. `code` (may be null) gets the GPU's code
// (kernels/linear/routes.h).
cu::Result Prepare(const cu::Driver& driver, int64_t* code);

// `warps`: at most so many at once; 0 or less: as many as the GPU has room for.
cu::Result LaunchUnpack(const cu::Driver& driver, Layout layout, const UnpackArgs& args,
                        int64_t warps, cu::Stream stream);

// M of 1 to 64. `workspace`, 16-byte aligned, has StepWorkspaceBytes; `args.partial` is set from
// it.
size_t StepWorkspaceBytes(int64_t row_blocks, int64_t row_steps, int64_t m);
cu::Result LaunchStep(const cu::Driver& driver, Layout layout, StepArgs args, void* workspace,
                      cu::Stream stream);

// K % 64 == 0, x 16-byte aligned. `args.splits` and `args.partial` are set here.
size_t PromptWorkspaceBytes(int64_t row_blocks, int64_t row_steps, int64_t m);
cu::Result LaunchPrompt(const cu::Driver& driver, Layout layout, PromptArgs args, void* workspace,
                        cu::Stream stream);

// Mixtures of experts (kernels/linear/moe_body.h). `weights` null: products alone; else `workspace`
// has MoeWorkspaceBytes, and y [T, O] is the weighted sums.
cu::Result LaunchRoute(const cu::Driver& driver, const RouteArgs& args, cu::Stream stream);
size_t MoeWorkspaceBytes(int64_t pairs, int64_t rows);
cu::Result LaunchMoe(const cu::Driver& driver, Layout layout, MoeArgs args, const void* weights,
                     bool weights_are_fp32, void* workspace, cu::Stream stream);

cu::Result LaunchHold(const cu::Driver& driver, int64_t nanoseconds, cu::Stream stream);

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_CUDA_LAUNCH_H_
