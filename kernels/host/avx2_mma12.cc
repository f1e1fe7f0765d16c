#if defined(__x86_64__)

#include <bit>

#include "kernels/host/internal/avx2.h"
#include "kernels/host/internal/targets.h"

namespace glyd::internal::avx2 {
namespace {

// Signs and offsets of high bytes; those of exceptions get offset 0 and a bit in the mask returned.
GLYD_AVX2_INLINE uint32_t Code(__m256i high, __m256i hb, __m256i* code) {
  const __m256i sign = _mm256_and_si256(high, _mm256_set1_epi8(-0x80));
  const __m256i offset = _mm256_sub_epi8(_mm256_xor_si256(high, sign), hb);
  const __m256i coded = _mm256_cmpeq_epi8(_mm256_min_epu8(offset, _mm256_set1_epi8(7)), offset);
  *code = _mm256_or_si256(sign, _mm256_and_si256(coded, offset));
  return ~static_cast<uint32_t>(_mm256_movemask_epi8(coded));
}

GLYD_AVX2_INLINE __m256i RotateRight4(__m256i v) {
  return _mm256_or_si256(_mm256_srli_epi32(v, 4), _mm256_slli_epi32(v, 28));
}
GLYD_AVX2_INLINE __m256i RotateLeft4(__m256i v) {
  return _mm256_or_si256(_mm256_slli_epi32(v, 4), _mm256_srli_epi32(v, 28));
}

// The nibbles of 16 bits, each followed by an empty one.
uint32_t SpreadNibbles(uint32_t v) {
  v = (v | v << 8) & 0x00FF00FF;
  return (v | v << 4) & 0x0F0F0F0F;
}

// Exceptions of lanes t and t + 1, whose even and odd rows' masks are given, in the order of q.
uint32_t* AppendExceptions(uint32_t even, uint32_t odd, const uint16_t* weights, uint64_t stride,
                           uint32_t hb, int g, int t, uint32_t* exc) {
  for (int lane = t; lane < t + 2; ++lane, even >>= 16, odd >>= 16) {
    uint32_t mask = SpreadNibbles(even & 0xFFFF) | SpreadNibbles(odd & 0xFFFF) << 4;
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t q = static_cast<uint32_t>(128 * g + 32 * lane + std::countr_zero(mask));
      const uint16_t w =
          weights[StepRow(static_cast<int>(q)) * stride + StepCol(static_cast<int>(q))];
      *exc++ = (hb ^ (w >> 8 & 0x7F)) << 16 | q;
    }
  }
  return exc;
}

GLYD_AVX2_INLINE uint32_t* EncodeStep(uint32_t base, const uint16_t* weights, uint64_t stride,
                                      uint8_t* data, uint32_t* exc) {
  const __m256i hb = _mm256_set1_epi8(static_cast<char>(base));
  uint8_t* low = data + kMma12CodeBytes;
  for (int g = 0; g < 8; ++g) {
    __m256i row[8];
    for (int n = 0; n < 8; ++n) row[n] = Load(weights + (8 * n + g) * stride);
    StoreLanes(low + 64 * g, ToLanes({MergeLow(row[0], row[1]), MergeLow(row[2], row[3])}));
    StoreLanes(low + kHalfBytes + 64 * g,
               ToLanes({MergeLow(row[4], row[5]), MergeLow(row[6], row[7])}));
    const Lanes even = ToLanes({MergeHigh(row[0], row[2]), MergeHigh(row[4], row[6])});
    const Lanes odd = ToLanes({MergeHigh(row[1], row[3]), MergeHigh(row[5], row[7])});
    __m256i e01, e23, o01, o23;
    const uint32_t even01 = Code(even.t01, hb, &e01), even23 = Code(even.t23, hb, &e23);
    const uint32_t odd01 = Code(odd.t01, hb, &o01), odd23 = Code(odd.t23, hb, &o23);
    StoreLanes(data + 64 * g,
               {_mm256_or_si256(e01, RotateRight4(o01)), _mm256_or_si256(e23, RotateRight4(o23))});
    if ((even01 | even23 | odd01 | odd23) == 0) continue;
    exc = AppendExceptions(even01, odd01, weights, stride, base, g, 0, exc);
    exc = AppendExceptions(even23, odd23, weights, stride, base, g, 2, exc);
  }
  return exc;
}

GLYD_AVX2_INLINE void DecodeStep(__m256i hb, const uint8_t* data, uint16_t* out, uint64_t stride) {
  const __m256i code_bits = _mm256_set1_epi8(static_cast<char>(0x87));
  const uint8_t* low = data + kMma12CodeBytes;
  for (int g = 0; g < 8; ++g) {
    const Lanes codes = LoadLanes(data + 64 * g);
    const auto high = [&](__m256i v)
                          GLYD_AVX2 { return _mm256_add_epi8(_mm256_and_si256(v, code_bits), hb); };
    const Merged even = FromLanes({high(codes.t01), high(codes.t23)});
    const Merged odd = FromLanes({high(RotateLeft4(codes.t01)), high(RotateLeft4(codes.t23))});
    const Merged first = FromLanes(LoadLanes(low + 64 * g));
    const Merged last = FromLanes(LoadLanes(low + kHalfBytes + 64 * g));
    const auto put = [&](int n, __m256i low_bytes, __m256i high_bytes) GLYD_AVX2 {
      Store(out + (8 * n + g) * stride, Select(LowBytes(), low_bytes, high_bytes));
    };
    put(0, first.r01, _mm256_slli_epi16(even.r01, 8));
    put(1, _mm256_srli_epi16(first.r01, 8), _mm256_slli_epi16(odd.r01, 8));
    put(2, first.r23, even.r01);
    put(3, _mm256_srli_epi16(first.r23, 8), odd.r01);
    put(4, last.r01, _mm256_slli_epi16(even.r23, 8));
    put(5, _mm256_srli_epi16(last.r01, 8), _mm256_slli_epi16(odd.r23, 8));
    put(6, last.r23, even.r23);
    put(7, _mm256_srli_epi16(last.r23, 8), odd.r23);
  }
}

}  // namespace

GLYD_AVX2 uint64_t EncodeMma12(const StepCodes& codes, const uint16_t* weights, StepRun run,
                               uint8_t* data, uint32_t* side, uint32_t* sizes) {
  uint32_t* exc = side;
  for (uint64_t s = 0; s < run.steps; ++s) {
    uint32_t* end =
        EncodeStep(codes.hb, weights + kStepCols * s, run.stride, data + kMma12StepBytes * s, exc);
    sizes[s] = static_cast<uint32_t>(end - exc);
    exc = end;
  }
  return exc - side;
}

GLYD_AVX2 void DecodeMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                           const int32_t* base, StepRun run, uint16_t* out) {
  const __m256i hb = _mm256_set1_epi8(static_cast<char>(codes.hb));
  for (uint64_t s = 0; s < run.steps; ++s) {
    DecodeStep(hb, data + kMma12StepBytes * s, out + kStepCols * s, run.stride);
    ApplyExceptions(side + base[s], base[s + 1] - base[s], out + kStepCols * s, run.stride);
  }
}

}  // namespace glyd::internal::avx2

#endif  // __x86_64__
