#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "kernels/host/internal/targets.h"

// Plain C++ for any machine, a lane's group of four weights at a time.

namespace glyd::internal {
namespace {

constexpr int kLanesOfGroup =
    4;  // lane 4 g + t: rows g, 8 + g, ... of a step, four columns of each

// Weights j 0-3 of (n, g, t): a row's columns 2t, 2t + 1, 8 + 2t, 9 + 2t.
struct Four {
  uint16_t w[4];
};
Four Load(const uint16_t* step, uint64_t stride, int n, int g, int t) {
  const uint16_t* row = step + (8 * n + g) * stride + 2 * t;
  return {{row[0], row[1], row[8], row[9]}};
}
void Store(Four v, uint16_t* step, uint64_t stride, int n, int g, int t) {
  uint16_t* row = step + (8 * n + g) * stride + 2 * t;
  row[0] = v.w[0], row[1] = v.w[1], row[8] = v.w[2], row[9] = v.w[3];
}

// Offset, in a step's bytes a weight, of the four of (n, lane).
int FourAt(int n, int lane) { return kHalfBytes * (n >> 2) + 16 * lane + 4 * (n & 3); }

uint64_t EncodeMma12Step(uint32_t hb, const uint16_t* weights, uint64_t stride, uint8_t* data,
                         uint32_t* exc) {
  uint32_t* const first = exc;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < 8; ++n) {
      const Four v = Load(weights, stride, n, lane / kLanesOfGroup, lane % kLanesOfGroup);
      uint32_t codes = 0, low = 0;
      for (int j = 0; j < 4; ++j) {
        const uint32_t x = v.w[j] >> 8 & 0x7F, offset = x - hb;
        low |= (v.w[j] & 0xFFu) << 8 * j;
        codes |= (v.w[j] >> 15) << (8 * j + 7);
        if (offset < 8)
          codes |= offset << 8 * j;
        else
          *exc++ = (hb ^ x) << 16 | (kLaneWeights * lane + 4 * n + j);
      }
      std::memcpy(data + kMma12CodeBytes + FourAt(n, lane), &low, 4);
      uint8_t* word = data + 16 * lane + 4 * (n >> 1);
      const uint32_t half = n % 2 == 0 ? codes : LoadLe32(word) | std::rotr(codes, 4);
      std::memcpy(word, &half, 4);
    }
  return exc - first;
}

void DecodeMma12Step(uint32_t hb, const uint8_t* data, uint16_t* out, uint64_t stride) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < 8; ++n) {
      uint32_t codes = LoadLe32(data + 16 * lane + 4 * (n >> 1));
      if (n % 2 != 0) codes = std::rotl(codes, 4);
      const uint32_t high = (codes & 0x87878787u) + 0x01010101u * hb;
      const uint32_t low = LoadLe32(data + kMma12CodeBytes + FourAt(n, lane));
      Four v;
      for (int j = 0; j < 4; ++j)
        v.w[j] = static_cast<uint16_t>((high >> 8 * j & 0xFF) << 8 | (low >> 8 * j & 0xFF));
      Store(v, out, stride, n, lane / kLanesOfGroup, lane % kLanesOfGroup);
    }
}

// A step's escapes are lists of exponents, one a tier. Everything is appended and the length moves
// on or not: as branches, escapes would be mispredicted every few weights.
using List = uint8_t[kStepWeights + 1];

// The digits of a later tier's list of n, four a byte, the rest of the last 16 zero; its escapes go
// to `next`.
uint32_t EncodeTier(const StepCodes& codes, uint32_t tier_rank, const List& list, uint32_t n,
                    uint8_t* digits, List& next) {
  std::memset(digits, 0, (n + 15) / 16 * 4);
  uint32_t escapes = 0;
  for (uint32_t k = 0; k < n; ++k) {
    const uint32_t above = codes.rank[list[k]] - tier_rank, digit = above < 3 ? above : 3;
    digits[k >> 2] |= static_cast<uint8_t>(digit << 2 * (k & 3));
    next[escapes] = list[k];
    escapes += digit == 3;
  }
  return escapes;
}

uint32_t EncodeMmaStep(const StepCodes& codes, const uint16_t* weights, uint64_t stride,
                       uint8_t* data, uint8_t* block) {
  List escapes1, escapes2, escapes3;
  uint8_t second[kStepWeights / 4], third[kStepWeights / 4];
  uint32_t t1 = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < 8; ++n) {
      const Four v = Load(weights, stride, n, lane / kLanesOfGroup, lane % kLanesOfGroup);
      uint32_t bytes = 0, digits = 0;
      for (int j = 0; j < 4; ++j) {
        const uint32_t exponent = v.w[j] >> 7 & 0xFF, rank = codes.rank[exponent];
        bytes |= ((v.w[j] & 0x7Fu) << 1 | v.w[j ^ 1] >> 15) << 8 * j;
        digits |= (rank < 3 ? rank : 3) << 2 * j;
        escapes1[t1] = static_cast<uint8_t>(exponent);
        t1 += rank >= 3;
      }
      std::memcpy(data + kMmaDigitBytes + FourAt(n, lane), &bytes, 4);
      data[4 * kLanes * (n >> 2) + 4 * lane + (n & 3)] = static_cast<uint8_t>(digits);
    }
  const uint32_t t2 = EncodeTier(codes, 3, escapes1, t1, second, escapes2);
  const uint32_t t3 = EncodeTier(codes, 6, escapes2, t2, third, escapes3);
  const uint32_t r0 = (t2 + 3) / 4, d2_bytes = (t1 + 15) / 16 * 4;
  const uint32_t size = r0 + t3 + d2_bytes;
  std::memcpy(block, third, r0);
  std::memcpy(block + r0, escapes3, t3);
  for (uint32_t k = 0; k < d2_bytes; k += 4) std::memcpy(block + size - 4 - k, second + k, 4);
  return size;
}

// An exponent by its digit: the tier's or, escaped, the next of `escapes`, which then moves on.
uint8_t Expand(uint32_t tier, uint32_t digit, const uint8_t** escapes) {
  const uint32_t coded = tier >> 8 * digit & 0xFF, escaped = **escapes;
  *escapes += digit == 3;
  return static_cast<uint8_t>(digit == 3 ? escaped : coded);
}

void DecodeMmaStep(const StepCodes& codes, const uint8_t* data, const uint8_t* block, uint32_t size,
                   uint16_t* out, uint64_t stride) {
  const auto second = [&](uint32_t k) -> uint32_t {
    return block[size - 4 * ((k >> 4) + 1) + ((k & 15) >> 2)] >> 2 * (k & 3) & 3;
  };
  uint32_t t1 = 0, t2 = 0;
  for (int at = 0; at < kMmaDigitBytes; at += 8) {
    const uint64_t v = LoadLe64(data + at);
    t1 += static_cast<uint32_t>(std::popcount(v & v >> 1 & 0x5555555555555555u));
  }
  for (uint32_t k = 0; k < t1; ++k) t2 += second(k) == 3;
  List escapes1 = {}, escapes2 = {};
  const uint8_t* next = block + (t2 + 3) / 4;
  for (uint32_t k = 0; k < t2; ++k)
    escapes2[k] = Expand(codes.tiers[2], block[k >> 2] >> 2 * (k & 3) & 3, &next);
  next = escapes2;
  for (uint32_t k = 0; k < t1; ++k) escapes1[k] = Expand(codes.tiers[1], second(k), &next);
  next = escapes1;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < 8; ++n) {
      const uint32_t digits = data[4 * kLanes * (n >> 2) + 4 * lane + (n & 3)];
      const uint32_t bytes = LoadLe32(data + kMmaDigitBytes + FourAt(n, lane));
      Four v;
      for (int j = 0; j < 4; ++j) {
        const uint32_t exponent = Expand(codes.tiers[0], digits >> 2 * j & 3, &next);
        v.w[j] = static_cast<uint16_t>((bytes >> 8 * (j ^ 1) & 1) << 15 | exponent << 7 |
                                       (bytes >> (8 * j + 1) & 0x7F));
      }
      Store(v, out, stride, n, lane / kLanesOfGroup, lane % kLanesOfGroup);
    }
}

uint64_t EncodeMma(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                   uint8_t* side, uint32_t* sizes) {
  uint64_t total = 0;
  for (uint64_t s = 0; s < run.steps; ++s) {
    sizes[s] = EncodeMmaStep(codes, weights + kStepCols * s, run.stride, data + kMmaStepBytes * s,
                             side + total);
    total += sizes[s];
  }
  return total;
}

uint64_t EncodeMma12(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                     uint32_t* side, uint32_t* sizes) {
  uint64_t total = 0;
  for (uint64_t s = 0; s < run.steps; ++s) {
    sizes[s] = static_cast<uint32_t>(EncodeMma12Step(codes.hb, weights + kStepCols * s, run.stride,
                                                     data + kMma12StepBytes * s, side + total));
    total += sizes[s];
  }
  return total;
}

void DecodeMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
               const int32_t* base, StepRun run, uint16_t* out) {
  for (uint64_t s = 0; s < run.steps; ++s)
    DecodeMmaStep(codes, data + kMmaStepBytes * s, side + base[s], base[s + 1] - base[s],
                  out + kStepCols * s, run.stride);
}

void DecodeMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                 const int32_t* base, StepRun run, uint16_t* out) {
  for (uint64_t s = 0; s < run.steps; ++s) {
    DecodeMma12Step(codes.hb, data + kMma12StepBytes * s, out + kStepCols * s, run.stride);
    ApplyExceptions(side + base[s], base[s + 1] - base[s], out + kStepCols * s, run.stride);
  }
}

// Panels by way of rows, which stay in the first-level cache.
using PanelRows = uint16_t[kStepRows * kStepCols * kPanelSteps];

void PanelMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side, const int32_t* base,
              uint64_t steps, float* panel) {
  alignas(64) PanelRows rows;
  DecodeMma(codes, data, side, base, {kStepCols * kPanelSteps, steps}, rows);
  PanelFromRows(rows, steps, panel);
}

void PanelMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                const int32_t* base, uint64_t steps, float* panel) {
  alignas(64) PanelRows rows;
  DecodeMma12(codes, data, side, base, {kStepCols * kPanelSteps, steps}, rows);
  PanelFromRows(rows, steps, panel);
}

void CopyRows(const uint16_t* from, uint64_t from_stride, uint16_t* to, uint64_t to_stride,
              uint64_t steps) {
  CopyRowsBody(from, from_stride, to, to_stride, steps);
}

uint64_t CountEscapes(const uint8_t* digits, uint64_t bytes) {
  return CountEscapesBody(digits, bytes);
}

}  // namespace

void HistogramByTables(const uint16_t* weights, uint64_t n, uint64_t counts[256]) {
  constexpr uint64_t kTables = 8, kPass = uint64_t{1} << 30;  // below what a table's counters hold
  while (n > 0) {
    uint32_t tables[kTables][256] = {};
    const uint64_t pass = n < kPass ? n : kPass;
    uint64_t i = 0;
    for (; i + kTables <= pass; i += kTables) {
      const uint64_t a = LoadLe64(weights + i), b = LoadLe64(weights + i + 4);
      ++tables[0][a >> 7 & 0xFF];
      ++tables[1][a >> 23 & 0xFF];
      ++tables[2][a >> 39 & 0xFF];
      ++tables[3][a >> 55 & 0xFF];
      ++tables[4][b >> 7 & 0xFF];
      ++tables[5][b >> 23 & 0xFF];
      ++tables[6][b >> 39 & 0xFF];
      ++tables[7][b >> 55 & 0xFF];
    }
    for (; i < pass; ++i) ++tables[0][weights[i] >> 7 & 0xFF];
    for (const auto& table : tables)
      for (int e = 0; e < 256; ++e) counts[e] += table[e];
    weights += pass;
    n -= pass;
  }
}

const HostKernels kScalarKernels = {
    .target = HostTarget::kScalar,
    .histogram = HistogramByTables,
    .copy_rows = CopyRows,
    .count_escapes = CountEscapes,
    .encode_mma = EncodeMma,
    .encode_mma12 = EncodeMma12,
    .decode_mma = DecodeMma,
    .decode_mma12 = DecodeMma12,
    .panel_mma = PanelMma,
    .panel_mma12 = PanelMma12,
    .multiply_panel = MultiplyPanelScalar,
};

}  // namespace glyd::internal
