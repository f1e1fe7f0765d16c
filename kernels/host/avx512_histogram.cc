#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "kernels/host/internal/avx512.h"
#include "kernels/host/internal/targets.h"

// Counts by bit planes. Almost all exponents of a model lie within 32 neighbours. Less the first of
// those they are five bits, and a mask of 64 weights for each bit; 512 weights' masks are one
// vector a bit, 32 ANDs of them (or their complements) pick the weights of each exponent, and a
// population count counts them: half an instruction a weight, where a table takes four and a store.

namespace glyd::internal::avx512 {
namespace {

constexpr int kWindow = 32;
constexpr int kBits = 5;
constexpr uint64_t kGroup = 512;  // weights of a vector of masks
constexpr uint64_t kGroupsAtOnce =
    16;  // masks are written, later read: not while the stores are under way
constexpr uint64_t kChunk = kGroup * kGroupsAtOnce;
constexpr uint64_t kSamples = 4096;

struct Planes {
  alignas(64) uint64_t bit[kBits][kGroupsAtOnce * 8];
  alignas(64) uint64_t inside[kGroupsAtOnce * 8];
};

// The window's first exponent where a sample has all but 1 in 64 in it, else -1.
int ChooseWindow(const uint16_t* weights, uint64_t n) {
  uint32_t counts[256] = {};
  for (uint64_t i = 0; i < kSamples; ++i) ++counts[weights[i * (n / kSamples)] >> 7 & 0xFF];
  uint32_t in_window = 0, most = 0;
  int best = 0;
  for (int e = 0; e < 256; ++e) {
    in_window += counts[e];
    if (e >= kWindow) in_window -= counts[e - kWindow];
    if (in_window > most) most = in_window, best = std::max(0, e - kWindow + 1);
  }
  return most >= kSamples - kSamples / 64 ? best : -1;
}

// The masks of a chunk; exponents outside the window are counted at once.
GLYD_AVX512_INLINE void FillPlanes(const uint16_t* weights, __m512i first, Planes* planes,
                                   uint64_t counts[256]) {
  for (uint64_t v = 0; v < kChunk / 64; ++v, weights += 64) {
    const __m512i x = Load(weights), y = Load(weights + 32);
    const __m512i exponents =
        Select(_mm512_set1_epi16(0x00FF), _mm512_srli_epi16(x, 7), _mm512_slli_epi16(y, 1));
    const __m512i place = _mm512_sub_epi8(exponents, first);
    for (int b = 0; b < kBits; ++b)
      planes->bit[b][v] = _mm512_test_epi8_mask(place, _mm512_set1_epi8(static_cast<char>(1 << b)));
    uint64_t outside = _mm512_cmpge_epu8_mask(place, _mm512_set1_epi8(kWindow));
    planes->inside[v] = ~outside;
    for (; outside != 0; outside &= outside - 1) {
      const int at = std::countr_zero(outside);
      ++counts[weights[32 * (at & 1) + (at >> 1)] >> 7 & 0xFF];
    }
  }
}

// Rows of a truth table: where bits are those of `value`, the lowest the last operand.
template <int kValue>
GLYD_AVX512_INLINE __m512i Are(__m512i b2, __m512i b1, __m512i b0) {
  return _mm512_ternarylogic_epi64(b2, b1, b0, 1 << kValue);
}

GLYD_AVX512_INLINE void CountGroup(const Planes& planes, uint64_t group, __m512i sums[kWindow]) {
  const auto plane = [&](int b) GLYD_AVX512 { return Load(&planes.bit[b][8 * group]); };
  const __m512i b0 = plane(0), b1 = plane(1), b2 = plane(2), b3 = plane(3), b4 = plane(4);
  const __m512i inside = Load(&planes.inside[8 * group]);
  const __m512i low[8] = {Are<0>(b2, b1, b0), Are<1>(b2, b1, b0), Are<2>(b2, b1, b0),
                          Are<3>(b2, b1, b0), Are<4>(b2, b1, b0), Are<5>(b2, b1, b0),
                          Are<6>(b2, b1, b0), Are<7>(b2, b1, b0)};
  const __m512i high[4] = {Are<4>(inside, b4, b3), Are<5>(inside, b4, b3), Are<6>(inside, b4, b3),
                           Are<7>(inside, b4, b3)};
#pragma GCC unroll 32
  for (int e = 0; e < kWindow; ++e) {
    const __m512i these = _mm512_and_si512(high[e >> 3], low[e & 7]);
    sums[e] = _mm512_add_epi64(sums[e], _mm512_popcnt_epi64(these));
  }
}

}  // namespace

GLYD_AVX512 void Histogram(const uint16_t* weights, uint64_t n, uint64_t counts[256]) {
  const int first = n >= 4 * kChunk ? ChooseWindow(weights, n) : -1;
  if (first >= 0) {
    __m512i sums[kWindow] = {};
    Planes planes;
    for (; n >= kChunk; n -= kChunk, weights += kChunk) {
      FillPlanes(weights, _mm512_set1_epi8(static_cast<char>(first)), &planes, counts);
      for (uint64_t group = 0; group < kGroupsAtOnce; ++group) CountGroup(planes, group, sums);
    }
    for (int e = 0; e < kWindow; ++e)
      if (first + e < 256)
        counts[first + e] += static_cast<uint64_t>(_mm512_reduce_add_epi64(sums[e]));
  }
  HistogramByTables(weights, n, counts);
}

}  // namespace glyd::internal::avx512

#endif  // __x86_64__
