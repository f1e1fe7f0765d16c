#ifndef GLYD_KERNELS_LINEAR_INTERNAL_WITH_H_
#define GLYD_KERNELS_LINEAR_INTERNAL_WITH_H_

#include "absl/status/status.h"
#include "kernels/host/kernels.h"
#include "kernels/linear/linear.h"

namespace glyd::internal {

// LinearOnHost by a given set of kernels.
absl::Status LinearWith(const HostKernels& kernels, const LinearArgs& args, int threads);

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_LINEAR_INTERNAL_WITH_H_
