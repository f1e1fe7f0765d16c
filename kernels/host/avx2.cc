#if defined(__x86_64__)

#include "kernels/host/internal/avx2.h"

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

const HostKernels kAvx2Kernels = {
    .target = HostTarget::kAvx2,
    .histogram = HistogramByTables,
    .encode_mma = avx2::EncodeMma,
    .encode_mma12 = avx2::EncodeMma12,
    .decode_mma = avx2::DecodeMma,
    .decode_mma12 = avx2::DecodeMma12,
};

}  // namespace glyd::internal

#endif  // __x86_64__
