#if defined(__x86_64__)

#include "kernels/host/internal/avx512.h"

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

namespace {

GLYD_AVX512 void CopyRows(const uint16_t* from, uint64_t from_stride, uint16_t* to,
                          uint64_t to_stride, uint64_t steps) {
  CopyRowsBody(from, from_stride, to, to_stride, steps);
}

GLYD_AVX512 uint64_t CountEscapes(const uint8_t* digits, uint64_t bytes) {
  return CountEscapesBody(digits, bytes);
}

}  // namespace

const HostKernels kAvx512Kernels = {
    .target = HostTarget::kAvx512,
    .histogram = avx512::Histogram,
    .copy_rows = CopyRows,
    .count_escapes = CountEscapes,
    .encode_mma = avx512::EncodeMma,
    .encode_mma12 = avx512::EncodeMma12,
    .decode_mma = avx512::DecodeMma,
    .decode_mma12 = avx512::DecodeMma12,
    .panel_mma = avx512::PanelMma,
    .panel_mma12 = avx512::PanelMma12,
    .multiply_panel = avx512::MultiplyPanel,
    .fused_mma12 = avx512::FusedMma12,
};

}  // namespace glyd::internal

#endif  // __x86_64__
