#if defined(__x86_64__)

#include "kernels/host/internal/avx2.h"

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

namespace {

GLYD_AVX2 void CopyRows(const uint16_t* from, uint64_t from_stride, uint16_t* to,
                        uint64_t to_stride, uint64_t steps) {
  CopyRowsBody(from, from_stride, to, to_stride, steps);
}

}  // namespace

const HostKernels kAvx2Kernels = {
    .target = HostTarget::kAvx2,
    .histogram = HistogramByTables,
    .copy_rows = CopyRows,
    .encode_mma = avx2::EncodeMma,
    .encode_mma12 = avx2::EncodeMma12,
    .decode_mma = avx2::DecodeMma,
    .decode_mma12 = avx2::DecodeMma12,
};

}  // namespace glyd::internal

#endif  // __x86_64__
