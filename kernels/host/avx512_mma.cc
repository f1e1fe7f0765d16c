#if defined(__x86_64__)

#include <bit>
#include <cstring>

#include "kernels/host/internal/avx512.h"
#include "kernels/host/internal/targets.h"

// Layout mma in AVX-512. Escapes are lists: packing compresses the escaped exponents of a step to a
// list, that to a list of second escapes, and so on; unpacking expands the lists from the last tier
// to the first.

namespace glyd::internal::avx512 {
namespace {

constexpr int kListBytes =
    kStepWeights + 64;  // a step's, and what whole-vector stores scribble after

// Bytes of a half (n 0-3 or 4-7 by lane t) from or to the order of q: lanes 0, 1 of both halves,
// then lanes 2, 3.
GLYD_AVX512_INLINE void HalvesToOrder(__m512i first, __m512i last, __m512i* t01, __m512i* t23) {
  *t01 = _mm512_permutex2var_epi64(first, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), last);
  *t23 = _mm512_permutex2var_epi64(first, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), last);
}
GLYD_AVX512_INLINE void OrderToHalves(__m512i t01, __m512i t23, __m512i* first, __m512i* last) {
  *first = _mm512_shuffle_i64x2(t01, t23, 0x88);
  *last = _mm512_shuffle_i64x2(t01, t23, 0xDD);
}

// 64 digits of two bits from and to 64 bytes.
GLYD_AVX512_INLINE __m128i PackDigits(__m512i digits) {
  const __m512i nibbles = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x0401));
  return _mm512_cvtepi32_epi8(_mm512_madd_epi16(nibbles, _mm512_set1_epi32(0x00100001)));
}
GLYD_AVX512_INLINE __m512i UnpackDigits(__m128i digits) {
  const __m512i eights = _mm512_cvtepu16_epi64(digits);
  const __m512i shifts = _mm512_set1_epi64(0x0E0C0A0806040200);
  return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, eights), _mm512_set1_epi8(3));
}

GLYD_AVX512_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
GLYD_AVX512_INLINE void Store128(void* p, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), v);
}
GLYD_AVX512_INLINE __m128i ReverseDwords(__m128i v) { return _mm_shuffle_epi32(v, 0x1B); }

GLYD_AVX512_INLINE uint64_t FirstOnes(uint32_t n) { return _bzhi_u64(~uint64_t{0}, n); }

class Ranks {
 public:
  GLYD_AVX512_INLINE explicit Ranks(const StepCodes& codes)
      : t0_(Load(&codes.rank[0])),
        t1_(Load(&codes.rank[64])),
        t2_(Load(&codes.rank[128])),
        t3_(Load(&codes.rank[192])) {}
  GLYD_AVX512_INLINE __m512i Of(__m512i exponents) const {
    const __m512i low = _mm512_permutex2var_epi8(t0_, exponents, t1_);
    const __m512i high = _mm512_permutex2var_epi8(t2_, exponents, t3_);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(exponents), high);
  }

 private:
  __m512i t0_, t1_, t2_, t3_;
};

// Writes a step's data; the exponents of its first escapes go to `list` in the order of q. Returns
// their number.
GLYD_AVX512_INLINE uint32_t EncodeFirstTier(const Ranks& ranks, const uint16_t* weights,
                                            uint64_t stride, uint8_t* data, uint8_t* list) {
  const __m512i split = Load(kMergedToSplit.data());
  const __m512i three = _mm512_set1_epi8(3);
  uint8_t* const first = list;
  uint8_t* bytes = data + kMmaDigitBytes;
  for (int g = 0; g < 8; ++g) {
    const Rows rows = LoadRows(weights, stride, g);
    __m512i exponents[2];
    for (int h = 0; h < 2; ++h) {
      const __m512i x = h == 0 ? rows.a : rows.c, y = h == 0 ? rows.b : rows.d;
      const __m512i low = _mm512_permutexvar_epi8(split, MergeLow(x, y));
      const __m512i high = _mm512_permutexvar_epi8(split, MergeHigh(x, y));
      // A pair's bytes are one word: rotated left by 1, each byte's lowest bit is the other's sign.
      const __m512i signs = _mm512_shldi_epi16(high, high, 1);
      Store(bytes + kHalfBytes * h + 64 * g,
            Select(_mm512_set1_epi8(1), signs, _mm512_add_epi8(low, low)));
      exponents[h] =
          Select(_mm512_set1_epi8(1), _mm512_srli_epi16(low, 7), _mm512_add_epi8(high, high));
    }
    __m512i e[2];
    HalvesToOrder(exponents[0], exponents[1], &e[0], &e[1]);
    __m128 digits[2];
    for (int v = 0; v < 2; ++v) {
      const __m512i rank = ranks.Of(e[v]);
      digits[v] = _mm_castsi128_ps(PackDigits(_mm512_min_epu8(rank, three)));
      const __mmask64 escaped = _mm512_cmpge_epu8_mask(rank, three);
      Store(list, _mm512_maskz_compress_epi8(escaped, e[v]));
      list += std::popcount(escaped);
    }
    Store128(data + 16 * g, _mm_castps_si128(_mm_shuffle_ps(digits[0], digits[1], 0x88)));
    Store128(data + 128 + 16 * g, _mm_castps_si128(_mm_shuffle_ps(digits[0], digits[1], 0xDD)));
  }
  return static_cast<uint32_t>(list - first);
}

// The digits and escapes of a later tier's list of n: digits `rank - tier` through `put(k, 16
// bytes)` for each 64 from k on, escapes to `next`. Returns the escapes' number.
template <int kTierRank, bool kBackwards>
GLYD_AVX512_INLINE uint32_t EncodeTier(const Ranks& ranks, const uint8_t* list, uint32_t n,
                                       uint8_t* digits, uint8_t* next) {
  uint8_t* const first = next;
  for (uint32_t k = 0; k < n; k += 64) {
    const uint64_t there = n - k < 64 ? FirstOnes(n - k) : ~uint64_t{0};
    const __m512i e = Load(list + k);
    const __m512i above = _mm512_sub_epi8(ranks.Of(e), _mm512_set1_epi8(kTierRank));
    const __m512i digit = _mm512_min_epu8(above, _mm512_set1_epi8(3));
    const __m128i packed = PackDigits(_mm512_maskz_mov_epi8(there, digit));
    if (kBackwards)
      Store128(digits - k / 4 - 16, ReverseDwords(packed));
    else
      Store128(digits + k / 4, packed);
    const __mmask64 escaped = _mm512_mask_cmpeq_epu8_mask(there, digit, _mm512_set1_epi8(3));
    Store(next, _mm512_maskz_compress_epi8(escaped, e));
    next += std::popcount(escaped);
  }
  return static_cast<uint32_t>(next - first);
}

GLYD_AVX512 uint32_t EncodeStep(const Ranks& ranks, const uint16_t* weights, uint64_t stride,
                                uint8_t* data, uint8_t* block) {
  alignas(64) uint8_t escapes1[kListBytes], escapes2[kListBytes], escapes3[kListBytes];
  alignas(64) uint8_t second[kStepWeights / 4];
  const uint32_t t1 = EncodeFirstTier(ranks, weights, stride, data, escapes1);
  const uint32_t t2 = EncodeTier<3, true>(ranks, escapes1, t1, second + sizeof second, escapes2);
  const uint32_t t3 = EncodeTier<6, false>(ranks, escapes2, t2, block, escapes3);
  const uint32_t r0 = (t2 + 3) / 4, d2_bytes = 4 * ((t1 + 15) / 16);
  std::memcpy(block + r0, escapes3, t3);
  std::memcpy(block + r0 + t3, second + sizeof second - d2_bytes, d2_bytes);
  return r0 + t3 + d2_bytes;
}

GLYD_AVX512_INLINE uint32_t CountFirstEscapes(const uint8_t* data) {
  uint32_t n = 0;
  for (int at = 0; at < kMmaDigitBytes; at += 8) {
    uint64_t v;
    std::memcpy(&v, data + at, 8);
    n += static_cast<uint32_t>(std::popcount(v & v >> 1 & 0x5555555555555555u));
  }
  return n;
}

// Exponents of 64 weights of a tier: of their digits, or, escaped, the next of `escapes`, which
// moves on.
GLYD_AVX512_INLINE __m512i Expand(uint32_t tier, __m512i digits, const uint8_t** escapes) {
  const __m512i coded = _mm512_shuffle_epi8(_mm512_set1_epi32(static_cast<int>(tier)), digits);
  const __mmask64 escaped = _mm512_cmpeq_epi8_mask(digits, _mm512_set1_epi8(3));
  const __m512i e = _mm512_mask_expand_epi8(coded, escaped, Load(*escapes));
  *escapes += std::popcount(escaped);
  return e;
}

template <typename Sink>
GLYD_AVX512_INLINE void DecodeStep(const StepCodes& codes, const uint8_t* data,
                                   const uint8_t* block, uint32_t size, uint64_t step, Sink sink) {
  alignas(64) uint8_t digits2[kListBytes], escapes1[kListBytes + 64], escapes2[kListBytes + 64];
  const uint32_t t1 = CountFirstEscapes(data);
  uint32_t t2 = 0;
  for (uint32_t k = 0; k < t1; k += 64) {
    const __m512i digits = UnpackDigits(ReverseDwords(Load128(block + size - k / 4 - 16)));
    const uint64_t there = t1 - k < 64 ? FirstOnes(t1 - k) : ~uint64_t{0};
    Store(digits2 + k, digits);
    t2 += std::popcount(_mm512_mask_cmpeq_epu8_mask(there, digits, _mm512_set1_epi8(3)));
  }
  const uint8_t* next = block + (t2 + 3) / 4;
  for (uint32_t k = 0; k < t2; k += 64)
    Store(escapes2 + k, Expand(codes.tiers[2], UnpackDigits(Load128(block + k / 4)), &next));
  next = escapes2;
  for (uint32_t k = 0; k < t1; k += 64)
    Store(escapes1 + k, Expand(codes.tiers[1], Load(digits2 + k), &next));
  next = escapes1;
  const __m512i split = Load(kSplitToMerged.data());
  const __m512i low_seven = _mm512_set1_epi8(0x7F), low_bits = _mm512_set1_epi16(0x00FF);
  const uint8_t* bytes = data + kMmaDigitBytes;
  for (int g = 0; g < 8; ++g) {
    const __m128i first = Load128(data + 16 * g), last = Load128(data + 128 + 16 * g);
    const __m512i t01 =
        Expand(codes.tiers[0], UnpackDigits(_mm_unpacklo_epi32(first, last)), &next);
    const __m512i t23 =
        Expand(codes.tiers[0], UnpackDigits(_mm_unpackhi_epi32(first, last)), &next);
    __m512i e[2], x[2], y[2];
    OrderToHalves(t01, t23, &e[0], &e[1]);
    for (int h = 0; h < 2; ++h) {
      const __m512i byte = Load(bytes + kHalfBytes * h + 64 * g);
      const __m512i low = Select(low_seven, _mm512_srli_epi16(byte, 1), _mm512_slli_epi16(e[h], 7));
      // Rotated right by 1, each byte's highest bit is the other's lowest.
      const __m512i high =
          Select(low_seven, _mm512_srli_epi16(e[h], 1), _mm512_shldi_epi16(byte, byte, 15));
      const __m512i merged_low = _mm512_permutexvar_epi8(split, low);
      const __m512i merged_high = _mm512_permutexvar_epi8(split, high);
      x[h] = Select(low_bits, merged_low, _mm512_slli_epi16(merged_high, 8));
      y[h] = Select(low_bits, _mm512_srli_epi16(merged_low, 8), merged_high);
    }
    sink.Put(step, g, {x[0], y[0], x[1], y[1]});
  }
}

}  // namespace

GLYD_AVX512 uint64_t EncodeMma(const StepCodes& codes, const uint16_t* weights, StepRun run,
                               uint8_t* data, uint8_t* side, uint32_t* sizes) {
  const Ranks ranks(codes);
  uint8_t* block = side;
  for (uint64_t s = 0; s < run.steps; ++s) {
    sizes[s] =
        EncodeStep(ranks, weights + kStepCols * s, run.stride, data + kMmaStepBytes * s, block);
    block += sizes[s];
  }
  return block - side;
}

GLYD_AVX512 void DecodeMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
                           const int32_t* base, StepRun run, uint16_t* out) {
  for (uint64_t s = 0; s < run.steps; ++s)
    DecodeStep(codes, data + kMmaStepBytes * s, side + base[s], base[s + 1] - base[s], s,
               RowSink{out, run.stride});
}

GLYD_AVX512 void PanelMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
                          const int32_t* base, uint64_t steps, float* panel) {
  for (uint64_t s = 0; s < steps; ++s)
    DecodeStep(codes, data + kMmaStepBytes * s, side + base[s], base[s + 1] - base[s], s,
               PanelSink{panel});
}

}  // namespace glyd::internal::avx512

#endif  // __x86_64__
