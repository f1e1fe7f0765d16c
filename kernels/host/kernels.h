#ifndef GLYD_KERNELS_HOST_KERNELS_H_
#define GLYD_KERNELS_HOST_KERNELS_H_

#include <array>
#include <cstdint>

#include "kernels/format/step.h"
#include "kernels/host/target.h"

namespace glyd {

// The formats' inner loops, one set a target. They know steps and bytes; what a pack is,
// kernels/format knows.

// The codes of a matrix, as the loops take them.
struct StepCodes {
  std::array<uint32_t, 3> tiers = {};
  uint32_t hb = 0;
  std::array<uint8_t, 256> rank = {};  // of an exponent, 0-9; for encoding mma

  static StepCodes ForMma(const std::array<uint32_t, 3>& tiers);
  static StepCodes ForMma12(uint32_t hb);
};

// Most that a step writes to its side buffer, and what encoders may scribble past all they wrote
// (undefined bytes).
inline constexpr int kMaxBlockBytes = kStepWeights / 4 + kStepWeights + kStepWeights / 4;
inline constexpr int kMaxStepExceptions = kStepWeights;
inline constexpr int kSideSlackBytes = 64;

// Steps of one row block, at `weights` the first: row r of step s starts at weights + r * stride +
// 16 * s.
struct StepRun {
  uint64_t stride = 0;
  uint64_t steps = 0;
};

// A panel: up to kPanelSteps steps of a row block as fp32, for products. Its vectors of 16 are two
// rows' columns of one parity, 8 of each: [g][pair][step][parity][two rows][8], rows r = 8 n + g
// with n = kPanelRows[pair][0 or 1].
inline constexpr int kPanelSteps = 4;  // 16 KB: with its activations in any first-level cache
inline constexpr int kPanelPairs = 4;
inline constexpr int kPanelFloats = kStepWeights * kPanelSteps;
inline constexpr int kPanelRows[kPanelPairs][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}};
// Where [g][pair][step] starts.
constexpr int PanelAt(int g, int pair, uint64_t step) {
  return static_cast<int>(32 * ((kPanelPairs * g + pair) * kPanelSteps + step));
}
// A row block's running sums of one row of activations: [g][pair][two rows][8].
inline constexpr int kSumsPerRow = 8;
inline constexpr int kSumFloats = kStepRows * kSumsPerRow;
constexpr int SumsAt(int g, int pair) { return 16 * (kPanelPairs * g + pair); }

// Rows of x up to which decoding in registers, again for every four of them, costs less than a
// panel.
inline constexpr uint64_t kFusedRows = 8;

struct HostKernels {
  HostTarget target = HostTarget::kScalar;

  void (*histogram)(const uint16_t* weights, uint64_t n, uint64_t counts[256]);

  // The 64 rows of a row block's `steps` steps from one place to another.
  void (*copy_rows)(const uint16_t* from, uint64_t from_stride, uint16_t* to, uint64_t to_stride,
                    uint64_t steps);

  // Digits of value 3 in `bytes` bytes of four.
  uint64_t (*count_escapes)(const uint8_t* digits, uint64_t bytes);

  // Write the run's `data`, its blocks or exceptions back to back into `side` (room for the most
  // above and the slack), and sizes[s]: bytes of step s's block, or its number of exceptions.
  // Return their sum.
  uint64_t (*encode_mma)(const StepCodes& codes, const uint16_t* weights, StepRun run,
                         uint8_t* data, uint8_t* side, uint32_t* sizes);
  uint64_t (*encode_mma12)(const StepCodes& codes, const uint16_t* weights, StepRun run,
                           uint8_t* data, uint32_t* side, uint32_t* sizes);

  // `data` and `base` are those of the run's first step, `side` is the whole buffer. The pack has
  // passed CheckPack.
  void (*decode_mma)(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
                     const int32_t* base, StepRun run, uint16_t* out);
  void (*decode_mma12)(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                       const int32_t* base, StepRun run, uint16_t* out);

  // The same into a panel; `steps` is kPanelSteps at most.
  void (*panel_mma)(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
                    const int32_t* base, uint64_t steps, float* panel);
  void (*panel_mma12)(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                      const int32_t* base, uint64_t steps, float* panel);
  // sums[i] += the panel's products with row i of m of x: for each sum, step by step, the even
  // column's and then the odd one's, each by one fused multiply-add. Rows of x are `x_stride`
  // apart, their columns in each 16 split: 8 even ones, 8 odd ones.
  void (*multiply_panel)(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                         uint64_t m, float* sums);

  // All steps of a row block by m rows of x, 1 to kFusedRows, without a panel: sums, whatever they
  // held, become those that multiply_panel adds to zeros. Null where a target has none.
  void (*fused_mma12)(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                      const int32_t* base, uint64_t steps, const float* x, uint64_t x_stride,
                      uint64_t m, float* sums) = nullptr;
};

// `target` is one of AvailableTargets().
const HostKernels& KernelsFor(HostTarget target);
inline const HostKernels& ChosenKernels() {
  static const HostKernels& kernels = KernelsFor(ChosenTarget());
  return kernels;
}

}  // namespace glyd

#endif  // GLYD_KERNELS_HOST_KERNELS_H_
