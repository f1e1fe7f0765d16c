#if defined(__x86_64__)

#include "kernels/host/internal/avx2.h"

#include "kernels/host/internal/targets.h"

namespace glyd::internal {

namespace {

GLYD_AVX2 void CopyRows(const uint16_t* from, uint64_t from_stride, uint16_t* to,
                        uint64_t to_stride, uint64_t steps) {
  CopyRowsBody(from, from_stride, to, to_stride, steps);
}

// Panels by way of rows, which stay in the first-level cache.
using PanelRows = uint16_t[kStepRows * kStepCols * kPanelSteps];

void PanelMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side, const int32_t* base,
              uint64_t steps, float* panel) {
  alignas(64) PanelRows rows;
  avx2::DecodeMma(codes, data, side, base, {kStepCols * kPanelSteps, steps}, rows);
  PanelFromRows(rows, steps, panel);
}

void PanelMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                const int32_t* base, uint64_t steps, float* panel) {
  alignas(64) PanelRows rows;
  avx2::DecodeMma12(codes, data, side, base, {kStepCols * kPanelSteps, steps}, rows);
  PanelFromRows(rows, steps, panel);
}

GLYD_AVX2 uint64_t CountEscapes(const uint8_t* digits, uint64_t bytes) {
  return CountEscapesBody(digits, bytes);
}

}  // namespace

const HostKernels kAvx2Kernels = {
    .target = HostTarget::kAvx2,
    .histogram = HistogramByTables,
    .copy_rows = CopyRows,
    .count_escapes = CountEscapes,
    .encode_mma = avx2::EncodeMma,
    .encode_mma12 = avx2::EncodeMma12,
    .decode_mma = avx2::DecodeMma,
    .decode_mma12 = avx2::DecodeMma12,
    .panel_mma = PanelMma,
    .panel_mma12 = PanelMma12,
    .multiply_panel = avx2::MultiplyPanel,
};

}  // namespace glyd::internal

#endif  // __x86_64__
