#include "kernels/cuda/emulated.h"

#include <cstdlib>

#include "kernels/cuda/kernel_list.h"

namespace glyd::gpu {
namespace {
using Lane = simt::HostLane;
}

const std::vector<EmulatedKernel>& EmulatedKernels() {
  static const auto* kernels = new std::vector<EmulatedKernel>{
#define GLYD_EMULATED(name, Args, threads_a_block, bytes, ...)                            \
  {#name, sizeof(Args), threads_a_block, static_cast<size_t>(bytes),                      \
   [](simt::Launch launch, const void* args) {                                            \
     launch.threads = threads_a_block;                                                    \
     launch.shared_bytes = bytes;                                                         \
     return simt::Run(launch, [args](Lane& lane, void* shared) {                          \
       __VA_ARGS__(lane, static_cast<uint8_t*>(shared), *static_cast<const Args*>(args)); \
     });                                                                                  \
   }},
      GLYD_KERNELS(GLYD_EMULATED)
#undef GLYD_EMULATED
  };
  return *kernels;
}

const EmulatedKernel& FindEmulated(const std::string& name) {
  for (const EmulatedKernel& k : EmulatedKernels())
    if (name == k.name) return k;
  std::abort();
}

}  // namespace glyd::gpu
