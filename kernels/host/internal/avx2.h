#ifndef GLYD_KERNELS_HOST_INTERNAL_AVX2_H_
#define GLYD_KERNELS_HOST_INTERNAL_AVX2_H_

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "kernels/host/kernels.h"

// What the two layouts share in AVX2. A group g is rows g, 8 + g, ... 56 + g of a step, a vector of
// 16 words each. Bytes of two rows travel merged, one row's at even places and the other's at odd
// ones; four rows' bytes in the order of the format are two vectors, 16 bytes a lane t.

#define GLYD_AVX2 __attribute__((target("avx2,fma,bmi,popcnt")))
#define GLYD_AVX2_INLINE GLYD_AVX2 inline __attribute__((always_inline))

namespace glyd::internal::avx2 {

GLYD_AVX2_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
GLYD_AVX2_INLINE void Store(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
GLYD_AVX2_INLINE __m128i Load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}

// Bits of x where `mask` has ones, of y elsewhere.
GLYD_AVX2_INLINE __m256i Select(__m256i mask, __m256i x, __m256i y) {
  return _mm256_or_si256(_mm256_and_si256(mask, x), _mm256_andnot_si256(mask, y));
}
GLYD_AVX2_INLINE __m256i LowBytes() { return _mm256_set1_epi16(0x00FF); }

// The low or high bytes of two rows' words, merged.
GLYD_AVX2_INLINE __m256i MergeLow(__m256i x, __m256i y) {
  return _mm256_or_si256(_mm256_and_si256(x, LowBytes()), _mm256_slli_epi16(y, 8));
}
GLYD_AVX2_INLINE __m256i MergeHigh(__m256i x, __m256i y) {
  return _mm256_or_si256(_mm256_srli_epi16(x, 8), _mm256_andnot_si256(LowBytes(), y));
}

// Four rows' bytes, lanes t 0, 1 and 2, 3: byte 4r + 2h + b of a lane is row r, column 8h + 2t + b.
struct Lanes {
  __m256i t01, t23;
};
// The same as rows 0 with 1 and 2 with 3 merged.
struct Merged {
  __m256i r01, r23;
};

// Within a lane t, between (r, h, b) and the (h, pair of rows, b, row of the pair) that merging
// gives.
constexpr std::array<uint8_t, 16> kMergedToLane = {0, 2, 8,  10, 1, 3, 9,  11,
                                                   4, 6, 12, 14, 5, 7, 13, 15};
constexpr std::array<uint8_t, 16> kLaneToMerged = {0, 4, 1, 5, 8,  12, 9,  13,
                                                   2, 6, 3, 7, 10, 14, 11, 15};

GLYD_AVX2_INLINE __m256i Shuffle(__m256i v, const std::array<uint8_t, 16>& table) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data()));
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(half));
}
GLYD_AVX2_INLINE Lanes ToLanes(const Merged& m) {
  const __m256i t01 = _mm256_permute4x64_epi64(_mm256_unpacklo_epi32(m.r01, m.r23), 0xD8);
  const __m256i t23 = _mm256_permute4x64_epi64(_mm256_unpackhi_epi32(m.r01, m.r23), 0xD8);
  return {Shuffle(t01, kMergedToLane), Shuffle(t23, kMergedToLane)};
}
GLYD_AVX2_INLINE Merged FromLanes(const Lanes& lanes) {
  const __m256 t01 =
      _mm256_castsi256_ps(_mm256_permute4x64_epi64(Shuffle(lanes.t01, kLaneToMerged), 0xD8));
  const __m256 t23 =
      _mm256_castsi256_ps(_mm256_permute4x64_epi64(Shuffle(lanes.t23, kLaneToMerged), 0xD8));
  return {_mm256_castps_si256(_mm256_shuffle_ps(t01, t23, 0x88)),
          _mm256_castps_si256(_mm256_shuffle_ps(t01, t23, 0xDD))};
}

GLYD_AVX2_INLINE void StoreLanes(void* p, const Lanes& lanes) {
  Store(p, lanes.t01);
  Store(static_cast<uint8_t*>(p) + 32, lanes.t23);
}
GLYD_AVX2_INLINE Lanes LoadLanes(const void* p) {
  return {Load(p), Load(static_cast<const uint8_t*>(p) + 32)};
}

uint64_t EncodeMma(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                   uint8_t* side, uint32_t* sizes);
uint64_t EncodeMma12(const StepCodes& codes, const uint16_t* weights, StepRun run, uint8_t* data,
                     uint32_t* side, uint32_t* sizes);
void DecodeMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
               const int32_t* base, StepRun run, uint16_t* out);
void DecodeMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                 const int32_t* base, StepRun run, uint16_t* out);

void MultiplyPanel(const float* panel, uint64_t steps, const float* x, uint64_t x_stride,
                   uint64_t m, float* sums);

}  // namespace glyd::internal::avx2

#endif  // GLYD_KERNELS_HOST_INTERNAL_AVX2_H_
