#if defined(__x86_64__)

#include <bit>

#include "kernels/host/internal/avx512.h"
#include "kernels/host/internal/targets.h"

// Layout mma12 in AVX-512, about 30 vector instructions for a group's 128 weights either way.

namespace glyd::internal::avx512 {
namespace {

// Signs and offsets of a group's high bytes; exceptions get offset 0 and set `exception`.
GLYD_AVX512_INLINE __m512i Code(__m512i high, __m512i hb, __mmask64* exception) {
  const __m512i sign = _mm512_and_si512(high, _mm512_set1_epi8(-0x80));
  const __m512i offset = _mm512_sub_epi8(_mm512_xor_si512(high, sign), hb);
  *exception = _mm512_cmpgt_epu8_mask(offset, _mm512_set1_epi8(7));
  return _mm512_or_si512(sign, _mm512_maskz_mov_epi8(_knot_mask64(*exception), offset));
}

// The exceptions of a group in the order of q: lane t, then the even and odd rows' dwords by turns.
GLYD_AVX512 uint32_t* AppendExceptions(__m512i even, __m512i odd, __m512i hb, int g,
                                       uint32_t* exc) {
  const __m512i x_bits = _mm512_set1_epi8(0x7F);
  even = _mm512_and_si512(even, x_bits);
  odd = _mm512_and_si512(odd, x_bits);
  const __m512i first = _mm512_unpacklo_epi32(even, odd), last = _mm512_unpackhi_epi32(even, odd);
  const __m512i seven = _mm512_set1_epi8(7);
  const __mmask64 in_first = _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(first, hb), seven);
  const __mmask64 in_last = _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(last, hb), seven);
  alignas(64) uint8_t bytes[2][64];
  Store(bytes[0], _mm512_xor_si512(first, hb));
  Store(bytes[1], _mm512_xor_si512(last, hb));
  const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (int t = 0; t < 4; ++t)
    for (int h = 0; h < 2; ++h) {
      const __mmask16 mask = static_cast<__mmask16>((h == 0 ? in_first : in_last) >> 16 * t);
      const __m512i wide =
          _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes[h] + 16 * t)));
      const __m512i q = _mm512_add_epi32(iota, _mm512_set1_epi32(128 * g + 32 * t + 16 * h));
      Store(exc,
            _mm512_maskz_compress_epi32(mask, _mm512_or_si512(_mm512_slli_epi32(wide, 16), q)));
      exc += std::popcount(mask);
    }
  return exc;
}

GLYD_AVX512_INLINE uint32_t* EncodeStep(__m512i hb, const uint16_t* weights, uint64_t stride,
                                        uint8_t* data, uint32_t* exc) {
  const __m512i split = Load(kMergedToSplit.data()), alternate = Load(kMergedToAlternate.data());
  uint8_t* low = data + kMma12CodeBytes;
  for (int g = 0; g < 8; ++g) {
    const Rows rows = LoadRows(weights, stride, g);
    Store(low + 64 * g, _mm512_permutexvar_epi8(split, MergeLow(rows.a, rows.b)));
    Store(low + kHalfBytes + 64 * g, _mm512_permutexvar_epi8(split, MergeLow(rows.c, rows.d)));
    const __m512i even = _mm512_permutexvar_epi8(alternate, MergeHigh(rows.a, rows.c));
    const __m512i odd = _mm512_permutexvar_epi8(alternate, MergeHigh(rows.b, rows.d));
    __mmask64 even_exceptions, odd_exceptions;
    const __m512i even_codes = Code(even, hb, &even_exceptions);
    const __m512i odd_codes = Code(odd, hb, &odd_exceptions);
    Store(data + 64 * g, _mm512_or_si512(even_codes, _mm512_ror_epi32(odd_codes, 4)));
    if (!_kortestz_mask64_u8(even_exceptions, odd_exceptions))
      exc = AppendExceptions(even, odd, hb, g, exc);
  }
  return exc;
}

template <typename Sink>
GLYD_AVX512_INLINE void DecodeStep(__m512i hb, const uint8_t* data, uint64_t step, Sink sink) {
  const __m512i split = Load(kSplitToMerged.data()), alternate = Load(kAlternateToMerged.data());
  const __m512i code_bits = _mm512_set1_epi8(static_cast<char>(0x87));
  const __m512i low_bits = _mm512_set1_epi16(0x00FF);
  const uint8_t* low = data + kMma12CodeBytes;
  for (int g = 0; g < 8; ++g) {
    const __m512i codes = Load(data + 64 * g);
    const __m512i even = _mm512_add_epi8(_mm512_and_si512(codes, code_bits), hb);
    const __m512i odd =
        _mm512_add_epi8(_mm512_and_si512(_mm512_rol_epi32(codes, 4), code_bits), hb);
    const __m512i even_high =
        _mm512_permutexvar_epi8(alternate, even);  // a's at even bytes, c's at odd
    const __m512i odd_high = _mm512_permutexvar_epi8(alternate, odd);  // b's, d's
    const __m512i low_ab = _mm512_permutexvar_epi8(split, Load(low + 64 * g));
    const __m512i low_cd = _mm512_permutexvar_epi8(split, Load(low + kHalfBytes + 64 * g));
    sink.Put(step, g,
             {Select(low_bits, low_ab, _mm512_slli_epi16(even_high, 8)),
              Select(low_bits, _mm512_srli_epi16(low_ab, 8), _mm512_slli_epi16(odd_high, 8)),
              Select(low_bits, low_cd, even_high),
              Select(low_bits, _mm512_srli_epi16(low_cd, 8), odd_high)});
  }
}

template <typename Sink>
GLYD_AVX512_INLINE void DecodeSteps(const StepCodes& codes, const uint8_t* data,
                                    const uint32_t* side, const int32_t* base, uint64_t steps,
                                    Sink sink) {
  const __m512i hb = _mm512_set1_epi8(static_cast<char>(codes.hb));
  for (uint64_t s = 0; s < steps; ++s) {
    DecodeStep(hb, data + kMma12StepBytes * s, s, sink);
    sink.Apply(s, side + base[s], base[s + 1] - base[s]);
  }
}

}  // namespace

GLYD_AVX512 uint64_t EncodeMma12(const StepCodes& codes, const uint16_t* weights, StepRun run,
                                 uint8_t* data, uint32_t* side, uint32_t* sizes) {
  const __m512i hb = _mm512_set1_epi8(static_cast<char>(codes.hb));
  uint32_t* exc = side;
  for (uint64_t s = 0; s < run.steps; ++s) {
    uint32_t* end =
        EncodeStep(hb, weights + kStepCols * s, run.stride, data + kMma12StepBytes * s, exc);
    sizes[s] = static_cast<uint32_t>(end - exc);
    exc = end;
  }
  return exc - side;
}

GLYD_AVX512 void DecodeMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                             const int32_t* base, StepRun run, uint16_t* out) {
  DecodeSteps(codes, data, side, base, run.steps, RowSink{out, run.stride});
}

GLYD_AVX512 void PanelMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                            const int32_t* base, uint64_t steps, float* panel) {
  DecodeSteps(codes, data, side, base, steps, PanelSink{panel});
}

}  // namespace glyd::internal::avx512

#endif  // __x86_64__
