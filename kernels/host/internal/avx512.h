#ifndef GLYD_KERNELS_HOST_INTERNAL_AVX512_H_
#define GLYD_KERNELS_HOST_INTERNAL_AVX512_H_

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "kernels/host/internal/targets.h"
#include "kernels/host/kernels.h"

// What the two layouts share in AVX-512. A group g is rows g, 8 + g, ... 56 + g of a step: 128
// weights, one code line. Its words are held as four vectors of two rows:
//
//     a: n = 0, 2    b: n = 1, 3    c: n = 4, 6    d: n = 5, 7        (16 columns each)
//
// and its bytes as vectors in the order of the format, 16 bytes a lane t: "split" is n 0-3 or n
// 4-7, "even" is n 0, 2, 4, 6 and "odd" n 1, 3, 5, 7.

#define GLYD_AVX512                                                                \
  __attribute__((                                                                  \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2," \
             "avx512vpopcntdq,popcnt")))
#define GLYD_AVX512_INLINE GLYD_AVX512 inline __attribute__((always_inline))

namespace glyd::internal::avx512 {

using ByteTable = std::array<uint8_t, 64>;

// Two rows' words become bytes by merging: byte 2i of one vector, 2i + 1 of another. Of a merge of
// a (rows r = 0, 2) with b (rows 1, 3): where the byte of row r and column (t, j) of the order
// above is.
constexpr int MergedAt(int vector_half, int other, int t, int j) {
  const int column = 8 * (j >> 1) + 2 * t + (j & 1);
  return 2 * (16 * vector_half + column) + other;
}
constexpr ByteTable
MakeMergedToSplit() {  // a with b, or c with d: row 0 1 2 3 is (a 0, b 0, a 1, b 1)
  ByteTable table{};
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r)
      for (int j = 0; j < 4; ++j) table[16 * t + 4 * r + j] = MergedAt(r >> 1, r & 1, t, j);
  return table;
}
constexpr ByteTable
MakeMergedToAlternate() {  // a with c, or b with d: row 0 1 2 3 is (a 0, a 1, c 0, c 1)
  ByteTable table{};
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r)
      for (int j = 0; j < 4; ++j) table[16 * t + 4 * r + j] = MergedAt(r & 1, r >> 1, t, j);
  return table;
}
constexpr ByteTable Inverse(const ByteTable& table) {
  ByteTable inverse{};
  for (int i = 0; i < 64; ++i) inverse[table[i]] = static_cast<uint8_t>(i);
  return inverse;
}

alignas(64) inline constexpr ByteTable kMergedToSplit = MakeMergedToSplit();
alignas(64) inline constexpr ByteTable kSplitToMerged = Inverse(kMergedToSplit);
alignas(64) inline constexpr ByteTable kMergedToAlternate = MakeMergedToAlternate();
alignas(64) inline constexpr ByteTable kAlternateToMerged = Inverse(kMergedToAlternate);

GLYD_AVX512_INLINE __m512i Load(const void* p) { return _mm512_loadu_si512(p); }
GLYD_AVX512_INLINE void Store(void* p, __m512i v) { _mm512_storeu_si512(p, v); }

// Bits of x where `mask` has ones, of y elsewhere.
GLYD_AVX512_INLINE __m512i Select(__m512i mask, __m512i x, __m512i y) {
  return _mm512_ternarylogic_epi32(mask, x, y, 0xCA);
}

struct Rows {
  __m512i a, b, c, d;
};

GLYD_AVX512_INLINE __m512i LoadTwo(const uint16_t* row, const uint16_t* other) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(other));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
GLYD_AVX512_INLINE Rows LoadRows(const uint16_t* step, uint64_t stride, int g) {
  const uint16_t* row = step + g * stride;
  const uint64_t n = 8 * stride;
  return {LoadTwo(row, row + 2 * n), LoadTwo(row + n, row + 3 * n),
          LoadTwo(row + 4 * n, row + 6 * n), LoadTwo(row + 5 * n, row + 7 * n)};
}

GLYD_AVX512_INLINE void StoreTwo(__m512i v, uint16_t* row, uint16_t* other) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(other), _mm512_extracti64x4_epi64(v, 1));
}
GLYD_AVX512_INLINE void StoreRows(const Rows& rows, uint16_t* step, uint64_t stride, int g) {
  uint16_t* row = step + g * stride;
  const uint64_t n = 8 * stride;
  StoreTwo(rows.a, row, row + 2 * n);
  StoreTwo(rows.b, row + n, row + 3 * n);
  StoreTwo(rows.c, row + 4 * n, row + 6 * n);
  StoreTwo(rows.d, row + 5 * n, row + 7 * n);
}

// Where decoded rows go: rows of W, or a panel. Passed by value: by reference, GCC 12 at -O3 took a
// function that stored through one for a function without effects and dropped the calls.
struct RowSink {
  uint16_t* out;
  uint64_t stride;
  GLYD_AVX512_INLINE void Put(uint64_t step, int g, const Rows& rows) const {
    StoreRows(rows, out + kStepCols * step, stride, g);
  }
  GLYD_AVX512_INLINE void Apply(uint64_t step, const uint32_t* exc, int32_t count) const {
    ApplyExceptions(exc, count, out + kStepCols * step, stride);
  }
};
struct PanelSink {
  float* panel;
  GLYD_AVX512_INLINE void Put(uint64_t step, int g, const Rows& rows) const {
    const __m512i pairs[kPanelPairs] = {rows.a, rows.b, rows.c, rows.d};
    for (int pair = 0; pair < kPanelPairs; ++pair) {
      float* at = panel + PanelAt(g, pair, step);
      Store(at, _mm512_slli_epi32(pairs[pair], 16));
      Store(at + 16,
            _mm512_and_si512(pairs[pair], _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
    }
  }
  GLYD_AVX512_INLINE void Apply(uint64_t step, const uint32_t* exc, int32_t count) const {
    ApplyPanelExceptions(step, exc, count, panel);
  }
};

// The low or high bytes of two vectors' words, merged: x's at even places, y's at odd ones.
GLYD_AVX512_INLINE __m512i MergeLow(__m512i x, __m512i y) {
  return Select(_mm512_set1_epi16(0x00FF), x, _mm512_slli_epi16(y, 8));
}
GLYD_AVX512_INLINE __m512i MergeHigh(__m512i x, __m512i y) {
  return Select(_mm512_set1_epi16(0x00FF), _mm512_srli_epi16(x, 8), y);
}

void Histogram(const uint16_t* weights, uint64_t n, uint64_t counts[256]);
uint64_t EncodeMma(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                   uint8_t* side, uint32_t* sizes);
uint64_t EncodeMma12(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                     uint32_t* side, uint32_t* sizes);
void DecodeMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
               const int32_t* base, StepRun run, uint16_t* out);
void DecodeMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                 const int32_t* base, StepRun run, uint16_t* out);

void PanelMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side, const int32_t* base,
              uint64_t steps, float* panel);
void PanelMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                const int32_t* base, uint64_t steps, float* panel);
void MultiplyPanel(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                   uint64_t m, float* sums);
void FusedMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                const int32_t* base, uint64_t steps, const float* x, uint64_t x_stride, uint64_t m,
                float* sums);

}  // namespace glyd::internal::avx512

#endif  // GLYD_KERNELS_HOST_INTERNAL_AVX512_H_
