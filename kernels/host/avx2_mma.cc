#if defined(__x86_64__)

#include <bit>
#include <cstring>

#include "kernels/host/internal/avx2.h"
#include "kernels/host/internal/targets.h"

// Layout mma in AVX2: escapes as lists, as in AVX-512, compressed and expanded eight bytes at a
// time by tables.

namespace glyd::internal::avx2 {
namespace {

constexpr int kListBytes =
    kStepWeights + 64;  // a step's, and what whole-vector accesses reach past them

// For pshufb, of each mask of 8: `compress` moves the chosen bytes to the front; `expand` spreads
// the front bytes to the chosen places and zeroes the others.
struct ByteTables {
  uint64_t compress[256], expand[256];
};
constexpr ByteTables MakeTables() {
  ByteTables tables{};
  for (int mask = 0; mask < 256; ++mask) {
    int chosen = 0;
    uint64_t compress = 0, expand = 0;
    for (uint64_t i = 0; i < 8; ++i) {
      if ((mask >> i & 1) == 0) {
        expand |= uint64_t{0x80} << 8 * i;
        continue;
      }
      compress |= i << 8 * chosen;
      expand |= static_cast<uint64_t>(chosen) << 8 * i;
      ++chosen;
    }
    tables.compress[mask] = compress, tables.expand[mask] = expand;
  }
  return tables;
}
constexpr ByteTables kTables = MakeTables();

// Appends the bytes of v that `mask` chooses to `list`; up to 8 more are scribbled on.
GLYD_AVX2_INLINE uint8_t* Append(__m256i v, uint32_t mask, uint8_t* list) {
  const __m128i halves[2] = {_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)};
  for (int k = 0; k < 4; ++k, mask >>= 8) {
    const __m128i eight = k % 2 == 0 ? halves[k / 2] : _mm_srli_si128(halves[k / 2], 8);
    const __m128i chosen = _mm_shuffle_epi8(eight, Load64(&kTables.compress[mask & 0xFF]));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(list), chosen);
    list += std::popcount(mask & 0xFF);
  }
  return list;
}

// The next bytes of `*list`, which moves on, at the places that `mask` chooses; zeros elsewhere.
GLYD_AVX2_INLINE __m256i Spread(uint32_t mask, const uint8_t** list) {
  __m128i eight[4];
  for (int k = 0; k < 4; ++k, mask >>= 8) {
    eight[k] = _mm_shuffle_epi8(Load64(*list), Load64(&kTables.expand[mask & 0xFF]));
    *list += std::popcount(mask & 0xFF);
  }
  return _mm256_set_m128i(_mm_unpacklo_epi64(eight[2], eight[3]),
                          _mm_unpacklo_epi64(eight[0], eight[1]));
}

// 32 digits of two bits from and to 32 bytes.
GLYD_AVX2_INLINE uint64_t PackDigits(__m256i digits) {
  const __m256i nibbles = _mm256_maddubs_epi16(digits, _mm256_set1_epi16(0x0401));
  const __m256i bytes = _mm256_madd_epi16(nibbles, _mm256_set1_epi32(0x00100001));
  const __m256i first = _mm256_shuffle_epi8(bytes, _mm256_set1_epi32(0x0C080400));
  return static_cast<uint32_t>(_mm256_extract_epi32(first, 0)) |
         static_cast<uint64_t>(static_cast<uint32_t>(_mm256_extract_epi32(first, 4))) << 32;
}
GLYD_AVX2_INLINE __m256i UnpackDigits(uint64_t digits) {
  const __m256i four_times = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,  //
                                              4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m256i v =
      _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<int64_t>(digits)), four_times);
  // The last two of four digits come down by a nibble, then the odd ones by a table.
  const __m256i nibbles = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xAA);
  const __m256i one = _mm256_and_si256(nibbles, _mm256_set1_epi16(0x0C03));
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0));
  return _mm256_shuffle_epi8(table, one);
}

// Ranks of exponents: 9 less the best of what each of the nine gives.
class Ranks {
 public:
  GLYD_AVX2_INLINE explicit Ranks(const StepCodes& codes) {
    for (int r = 0; r < 9; ++r)
      exponents_[r] = _mm256_set1_epi8(static_cast<char>(codes.tiers[r / 3] >> 8 * (r % 3)));
  }
  GLYD_AVX2_INLINE __m256i Of(__m256i e) const {
    __m256i best = _mm256_setzero_si256();
    for (int r = 0; r < 9; ++r) {
      const __m256i equal = _mm256_cmpeq_epi8(e, exponents_[r]);
      best = _mm256_max_epu8(best,
                             _mm256_and_si256(equal, _mm256_set1_epi8(static_cast<char>(9 - r))));
    }
    return _mm256_sub_epi8(_mm256_set1_epi8(9), best);
  }

 private:
  __m256i exponents_[9];
};

GLYD_AVX2_INLINE __m256i RotateLeft16(__m256i v, int bits) {
  return _mm256_or_si256(_mm256_slli_epi16(v, bits), _mm256_srli_epi16(v, 16 - bits));
}

struct SplitBytes {
  __m256i exponents, signs_mantissas;
};
GLYD_AVX2_INLINE SplitBytes SplitFields(__m256i low, __m256i high) {
  const __m256i one = _mm256_set1_epi8(1);
  // A pair's bytes are one word: rotated left by 1, each byte's lowest bit is the other's sign.
  return {Select(one, _mm256_srli_epi16(low, 7), _mm256_add_epi8(high, high)),
          Select(one, RotateLeft16(high, 1), _mm256_add_epi8(low, low))};
}

GLYD_AVX2_INLINE uint32_t EncodeFirstTier(const Ranks& ranks, const uint16_t* weights,
                                          uint64_t stride, uint8_t* data, uint8_t* list) {
  uint8_t* const first = list;
  uint8_t* bytes = data + kMmaDigitBytes;
  for (int g = 0; g < 8; ++g) {
    SplitBytes fields[2][2];  // [half][lanes t 0, 1 or 2, 3]
    for (int h = 0; h < 2; ++h) {
      const uint16_t* row = weights + (32 * h + g) * stride;
      const __m256i r0 = Load(row), r1 = Load(row + 8 * stride);
      const __m256i r2 = Load(row + 16 * stride), r3 = Load(row + 24 * stride);
      const Lanes low = ToLanes({MergeLow(r0, r1), MergeLow(r2, r3)});
      const Lanes high = ToLanes({MergeHigh(r0, r1), MergeHigh(r2, r3)});
      fields[h][0] = SplitFields(low.t01, high.t01);
      fields[h][1] = SplitFields(low.t23, high.t23);
      StoreLanes(bytes + kHalfBytes * h + 64 * g,
                 {fields[h][0].signs_mantissas, fields[h][1].signs_mantissas});
    }
    for (int t = 0; t < 4; ++t) {
      const __m256i a = fields[0][t >> 1].exponents, b = fields[1][t >> 1].exponents;
      const __m256i e = t % 2 == 0 ? _mm256_permute2x128_si256(a, b, 0x20)
                                   : _mm256_permute2x128_si256(a, b, 0x31);
      const __m256i rank = ranks.Of(e);
      const uint64_t digits = PackDigits(_mm256_min_epu8(rank, _mm256_set1_epi8(3)));
      std::memcpy(data + 16 * g + 4 * t, &digits, 4);
      const uint32_t last = static_cast<uint32_t>(digits >> 32);
      std::memcpy(data + 128 + 16 * g + 4 * t, &last, 4);
      const __m256i escaped = _mm256_cmpgt_epi8(rank, _mm256_set1_epi8(2));
      list = Append(e, static_cast<uint32_t>(_mm256_movemask_epi8(escaped)), list);
    }
  }
  return static_cast<uint32_t>(list - first);
}

// The digits of a later tier's list of n, forwards from `digits` or, 16 at a time, back from it;
// escapes to `next`.
template <int kTierRank, bool kBackwards>
GLYD_AVX2_INLINE uint32_t EncodeTier(const Ranks& ranks, const uint8_t* list, uint32_t n,
                                     uint8_t* digits, uint8_t* next) {
  uint8_t* const first = next;
  const __m256i iota = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                        17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  for (uint32_t k = 0; k < n; k += 32) {
    const char left = static_cast<char>(n - k < 32 ? n - k : 32);
    const __m256i there = _mm256_cmpgt_epi8(_mm256_set1_epi8(left), iota);
    const __m256i e = Load(list + k);
    const __m256i above = _mm256_sub_epi8(ranks.Of(e), _mm256_set1_epi8(kTierRank));
    const __m256i digit = _mm256_and_si256(there, _mm256_min_epu8(above, _mm256_set1_epi8(3)));
    uint64_t packed = PackDigits(digit);
    if (kBackwards) {
      packed = std::rotl(packed, 32);
      std::memcpy(digits - k / 4 - 8, &packed, 8);
    } else {
      std::memcpy(digits + k / 4, &packed, 8);
    }
    const __m256i escaped = _mm256_cmpeq_epi8(digit, _mm256_set1_epi8(3));
    next = Append(e, static_cast<uint32_t>(_mm256_movemask_epi8(escaped)), next);
  }
  return static_cast<uint32_t>(next - first);
}

GLYD_AVX2 uint32_t EncodeStep(const Ranks& ranks, const uint16_t* weights, uint64_t stride,
                              uint8_t* data, uint8_t* block) {
  alignas(64) uint8_t escapes1[kListBytes], escapes2[kListBytes], escapes3[kListBytes];
  uint8_t second[kStepWeights / 4];
  const uint32_t t1 = EncodeFirstTier(ranks, weights, stride, data, escapes1);
  const uint32_t t2 = EncodeTier<3, true>(ranks, escapes1, t1, second + sizeof second, escapes2);
  const uint32_t t3 = EncodeTier<6, false>(ranks, escapes2, t2, block, escapes3);
  const uint32_t r0 = (t2 + 3) / 4, d2_bytes = 4 * ((t1 + 15) / 16);
  std::memcpy(block + r0, escapes3, t3);
  std::memcpy(block + r0 + t3, second + sizeof second - d2_bytes, d2_bytes);
  return r0 + t3 + d2_bytes;
}

uint64_t Load64Bits(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

// Exponents of 32 weights of a tier: of their digits, or, escaped, the next of `escapes`.
GLYD_AVX2_INLINE __m256i Expand(uint32_t tier, __m256i digits, const uint8_t** escapes) {
  const __m256i coded = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(tier)), digits);
  const __m256i escaped = _mm256_cmpeq_epi8(digits, _mm256_set1_epi8(3));
  const __m256i spread = Spread(static_cast<uint32_t>(_mm256_movemask_epi8(escaped)), escapes);
  return _mm256_or_si256(_mm256_andnot_si256(escaped, coded), spread);
}

// Digits k to k + 31 of the second tier, whose block ends at `end`.
GLYD_AVX2_INLINE __m256i SecondDigits(const uint8_t* end, uint32_t k) {
  return UnpackDigits(std::rotl(Load64Bits(end - k / 4 - 8), 32));
}

GLYD_AVX2 void DecodeStep(const StepCodes& codes, const uint8_t* data, const uint8_t* block,
                          uint32_t size, uint16_t* out, uint64_t stride) {
  alignas(64) uint8_t escapes1[kListBytes], escapes2[kListBytes];
  uint32_t t1 = 0, t2 = 0;
  for (int at = 0; at < kMmaDigitBytes; at += 8) {
    const uint64_t v = Load64Bits(data + at);
    t1 += static_cast<uint32_t>(std::popcount(v & v >> 1 & 0x5555555555555555u));
  }
  for (uint32_t k = 0; k < t1; k += 16) {
    uint32_t v;
    std::memcpy(&v, block + size - k / 4 - 4, 4);
    if (t1 - k < 16) v &= (1u << 2 * (t1 - k)) - 1;
    t2 += static_cast<uint32_t>(std::popcount(v & v >> 1 & 0x55555555u));
  }
  const uint8_t* next = block + (t2 + 3) / 4;
  for (uint32_t k = 0; k < t2; k += 32)
    Store(escapes2 + k, Expand(codes.tiers[2], UnpackDigits(Load64Bits(block + k / 4)), &next));
  next = escapes2;
  for (uint32_t k = 0; k < t1; k += 32)
    Store(escapes1 + k, Expand(codes.tiers[1], SecondDigits(block + size, k), &next));
  next = escapes1;
  const __m256i low_seven = _mm256_set1_epi8(0x7F);
  const uint8_t* bytes = data + kMmaDigitBytes;
  for (int g = 0; g < 8; ++g) {
    __m256i e[4];
    for (int t = 0; t < 4; ++t) {
      uint32_t first, last;
      std::memcpy(&first, data + 16 * g + 4 * t, 4);
      std::memcpy(&last, data + 128 + 16 * g + 4 * t, 4);
      e[t] = Expand(codes.tiers[0], UnpackDigits(first | uint64_t{last} << 32), &next);
    }
    for (int h = 0; h < 2; ++h) {
      const Lanes byte = LoadLanes(bytes + kHalfBytes * h + 64 * g);
      const Lanes exponent = h == 0 ? Lanes{_mm256_permute2x128_si256(e[0], e[1], 0x20),
                                            _mm256_permute2x128_si256(e[2], e[3], 0x20)}
                                    : Lanes{_mm256_permute2x128_si256(e[0], e[1], 0x31),
                                            _mm256_permute2x128_si256(e[2], e[3], 0x31)};
      const auto low = [&](__m256i b, __m256i x) GLYD_AVX2 {
        return Select(low_seven, _mm256_srli_epi16(b, 1), _mm256_slli_epi16(x, 7));
      };
      // Rotated right by 1, each byte's highest bit is the other's lowest.
      const auto high = [&](__m256i b, __m256i x) GLYD_AVX2 {
        return Select(low_seven, _mm256_srli_epi16(x, 1), RotateLeft16(b, 15));
      };
      const Merged lows = FromLanes({low(byte.t01, exponent.t01), low(byte.t23, exponent.t23)});
      const Merged highs = FromLanes({high(byte.t01, exponent.t01), high(byte.t23, exponent.t23)});
      uint16_t* row = out + (32 * h + g) * stride;
      Store(row, Select(LowBytes(), lows.r01, _mm256_slli_epi16(highs.r01, 8)));
      Store(row + 8 * stride, Select(LowBytes(), _mm256_srli_epi16(lows.r01, 8), highs.r01));
      Store(row + 16 * stride, Select(LowBytes(), lows.r23, _mm256_slli_epi16(highs.r23, 8)));
      Store(row + 24 * stride, Select(LowBytes(), _mm256_srli_epi16(lows.r23, 8), highs.r23));
    }
  }
}

}  // namespace

GLYD_AVX2 uint64_t EncodeMma(const StepCodes& codes, const uint16_t* weights, StepRun run,
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

GLYD_AVX2 void DecodeMma(const StepCodes& codes, const uint8_t* data, const uint8_t* side,
                         const int32_t* base, StepRun run, uint16_t* out) {
  for (uint64_t s = 0; s < run.steps; ++s)
    DecodeStep(codes, data + kMmaStepBytes * s, side + base[s], base[s + 1] - base[s],
               out + kStepCols * s, run.stride);
}

}  // namespace glyd::internal::avx2

#endif  // __x86_64__
