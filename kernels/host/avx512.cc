#if defined(__x86_64__)

#include "kernels/host/internal/avx512.h"

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

const HostKernels kAvx512Kernels = {
    .target = HostTarget::kAvx512,
    .histogram = avx512::Histogram,
    .encode_mma = avx512::EncodeMma,
    .encode_mma12 = avx512::EncodeMma12,
    .decode_mma = avx512::DecodeMma,
    .decode_mma12 = avx512::DecodeMma12,
};

}  // namespace glyd::internal

#endif  // __x86_64__
