#ifndef GLYD_KERNELS_CUDA_EMULATED_H_
#define GLYD_KERNELS_CUDA_EMULATED_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/simt/host_lane.h"

namespace glyd::gpu {

// A kernel of kernel_list.h as the emulator runs it.
struct EmulatedKernel {
  const char* name;
  size_t args_bytes;
  int threads;
  size_t shared_bytes;
  // Sets the launch's threads and shared_bytes; `args` is the kernel's one argument. As simt::Run.
  std::string (*run)(simt::Launch launch, const void* args);
};

const std::vector<EmulatedKernel>& EmulatedKernels();
// Of that name, which must be there.
const EmulatedKernel& FindEmulated(const std::string& name);

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_CUDA_EMULATED_H_
