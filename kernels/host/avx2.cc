#if defined(__x86_64__)

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

const HostKernels kAvx2Kernels = kScalarKernels;

}  // namespace glyd::internal

#endif  // __x86_64__
