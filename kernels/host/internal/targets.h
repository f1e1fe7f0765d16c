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

// count_escapes, likewise.
__attribute__((always_inline)) inline uint64_t CountEscapesBody(const uint8_t* digits,
                                                                uint64_t bytes) {
  uint64_t n = 0, v;
  for (; bytes >= sizeof v; bytes -= sizeof v, digits += sizeof v) {
    __builtin_memcpy(&v, digits, sizeof v);
    n += static_cast<uint64_t>(__builtin_popcountll(v & v >> 1 & 0x5555555555555555u));
  }
  v = 0;
  __builtin_memcpy(&v, digits, bytes);
  return n + static_cast<uint64_t>(__builtin_popcountll(v & v >> 1 & 0x5555555555555555u));
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

// The same in a panel: the high byte of a weight is that of its float.
inline void ApplyPanelExceptions(uint64_t step, const uint32_t* exc, int32_t count, float* panel) {
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(panel);
  for (const uint32_t* e = exc; e < exc + count; ++e) {
    const int q = static_cast<int>(*e & 0x3FF), n = (q & 31) >> 2, column = StepCol(q);
    const int pair = 2 * (n >> 2) + (n & 1), row = n >> 1 & 1;
    const int at = PanelAt(q >> 7, pair, step) + 16 * (column & 1) + 8 * row + (column >> 1);
    bytes[4 * at + 3] ^= static_cast<uint8_t>(*e >> 16);
  }
}

// A panel from decoded rows, 16 * kPanelSteps apart: what targets do that do not decode into it.
void PanelFromRows(const uint16_t* rows, uint64_t steps, float* panel);
void MultiplyPanelScalar(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                         uint64_t m, float* sums);

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_HOST_INTERNAL_TARGETS_H_
