#ifndef GLYD_KERNELS_FORMAT_STEP_H_
#define GLYD_KERNELS_FORMAT_STEP_H_

#include <cstdint>

namespace glyd {

enum class Layout : uint8_t { kMma = 1, kMma12 = 2 };

// The geometry of a warp step, the one place that knows it: 64 rows by 16 columns of W [O, K], its 1024 weights
// in the order in which a warp takes the B operand of mma.m16n8k16 for eight groups of 8 rows.
// Source: docs/format.md, "Warp steps".
inline constexpr int kStepRows = 64;
inline constexpr int kStepCols = 16;
inline constexpr int kStepWeights = kStepRows * kStepCols;
inline constexpr int kLanes = 32;
inline constexpr int kLaneWeights = kStepWeights / kLanes;

// Place q (0-1023) in a step: lane l = q / 32 = 4 g + t, weight i = q % 32 = 4 n + j of that lane.
constexpr int StepRow(int q) { return 8 * ((q & 31) >> 2) + (q >> 7); }
constexpr int StepCol(int q) { return 8 * ((q & 3) >> 1) + 2 * ((q >> 5) & 3) + (q & 1); }

// Bytes of `data` a step.
inline constexpr int kMmaDigitBytes = 256;                                   // first digits
inline constexpr int kMmaStepBytes = kMmaDigitBytes + kStepWeights;          // then sign and mantissa
inline constexpr int kMma12CodeBytes = 512;                                  // signs and offsets
inline constexpr int kMma12StepBytes = kMma12CodeBytes + kStepWeights;       // then low bytes

// `blocks` of layout mma: zeros before the first block and after the last.
inline constexpr int kMmaHeadBytes = 128;
inline constexpr int kMmaTailBytes = 256;

}  // namespace glyd

#endif  // GLYD_KERNELS_FORMAT_STEP_H_
