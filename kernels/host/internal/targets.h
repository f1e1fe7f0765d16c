#ifndef GLYD_KERNELS_HOST_INTERNAL_TARGETS_H_
#define GLYD_KERNELS_HOST_INTERNAL_TARGETS_H_

#include <cstdint>

#include "kernels/host/kernels.h"

namespace glyd::internal {

extern const HostKernels kScalarKernels;
#if defined(__x86_64__)
extern const HostKernels kAvx2Kernels;
extern const HostKernels kAvx512Kernels;
#endif

// Of any target: eight tables, so that equal exponents in a row do not wait for each other.
void HistogramByTables(const uint16_t* weights, uint64_t n, uint64_t counts[256]);

// `kernels/host/kernels.h` copy_rows, for a target's function to inline.
__attribute__((always_inline)) inline void CopyRowsBody(const uint16_t* from, uint64_t from_stride,
                                                        uint16_t* to, uint64_t to_stride,
                                                        uint64_t steps) {
  for (int r = 0; r < kStepRows; ++r, from += from_stride, to += to_stride)
    for (uint64_t s = 0; s < steps; ++s)
      __builtin_memcpy(to + kStepCols * s, from + kStepCols * s, kStepCols * sizeof *to);
}

// Both layouts keep a byte a weight: weights i 0-15 of all lanes, then 16-31.
inline constexpr int kHalfBytes = kStepWeights / 2;

// XORs a step's exceptions into its decoded rows.
inline void ApplyExceptions(const uint32_t* exc, int32_t count, uint16_t* out, uint64_t stride) {
  for (const uint32_t* e = exc; e < exc + count; ++e) {
    const int q = static_cast<int>(*e & 0x3FF);
    out[StepRow(q) * stride + StepCol(q)] ^= static_cast<uint16_t>(*e >> 8 & 0xFF00);
  }
}

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_HOST_INTERNAL_TARGETS_H_
