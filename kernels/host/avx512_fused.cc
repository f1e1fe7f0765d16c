#if defined(__x86_64__)

#include <cstring>

#include "kernels/host/internal/avx512.h"

// Layout mma12 times few rows of x, decoded in registers: 512 bytes of codes and 1024 low bytes a
// step are all that is read of W, and nothing of it is written. A group g of a step is one line of
// codes, two of low bytes:
//
//     codes   lane t: words 0-3, each two n's offsets and signs   -> high bytes of even n, of odd n
//     low     lane t: n 0-3; n 4-7                                 -> low bytes of even n, of odd n
//     bytes interleaved: dwords [t][n a, n b][columns 2t 2t+1, 8+2t 9+2t], bf16 pairs of sums t,
//     t+4
//
// Four such vectors a group: n 0 and 2, 4 and 6, 1 and 3, 5 and 7. A pair is two floats, the even
// column's by a shift, the odd one's by a mask, and two multiply-adds.

namespace glyd::internal::avx512 {
namespace {

// Steps after which another part of the groups has its turn: sums stay in registers that long, and
// 12 KB of W in the first-level cache.
constexpr uint64_t kRunSteps = 8;
constexpr int kVectors = 4;
// Steps that are asked for ahead, into the second-level cache: without that, or with the
// first-level cache's 8 steps alone, memory idles (0.7 of the rate of reading, one core; with both
// 0.83).
constexpr uint64_t kFarSteps = 32;

template <_mm_hint kHint>
GLYD_AVX512_INLINE void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), kHint);
}

// XORs of a run's exceptions, in the places of the interleaved vectors; zero but where `groups` of
// a step has the group's bit.
struct Patches {
  alignas(64) uint32_t at[kRunSteps][8][kVectors][16];
  uint32_t groups[kRunSteps];
};

void AddPatches(const uint32_t* exc, const int32_t* base, uint64_t steps, Patches* patches) {
  for (uint64_t s = 0; s < steps; ++s) {
    uint32_t groups = 0;
    for (int32_t e = base[s]; e < base[s + 1]; ++e) {
      const int q = static_cast<int>(exc[e] & 0x3FF), g = q >> 7, t = q >> 5 & 3;
      const int n = q >> 2 & 7, j = q & 3;
      const int vector = 2 * (n & 1) + (n >> 2);
      patches->at[s][g][vector][4 * t + 2 * (n >> 1 & 1) + (j >> 1)] ^= (exc[e] >> 16 & 0xFF)
                                                                        << (16 * (j & 1) + 8);
      groups |= 1u << g;
    }
    patches->groups[s] = groups;
  }
}

struct Group {
  __m512i pairs[kVectors];
};

GLYD_AVX512_INLINE Group DecodeGroup(__m512i hb, const uint8_t* data, int g) {
  const __m512i code_bits = _mm512_set1_epi8(static_cast<char>(0x87));
  const __m512i codes = Load(data + 64 * g);
  const __m512i even = _mm512_add_epi8(_mm512_and_si512(codes, code_bits), hb);
  const __m512i odd = _mm512_add_epi8(_mm512_and_si512(_mm512_rol_epi32(codes, 4), code_bits), hb);
  const __m512 low03 = _mm512_castsi512_ps(Load(data + kMma12CodeBytes + 64 * g));
  const __m512 low47 = _mm512_castsi512_ps(Load(data + kMma12CodeBytes + kHalfBytes + 64 * g));
  const __m512i low_even = _mm512_castps_si512(_mm512_shuffle_ps(low03, low47, 0x88));
  const __m512i low_odd = _mm512_castps_si512(_mm512_shuffle_ps(low03, low47, 0xDD));
  return {{_mm512_unpacklo_epi8(low_even, even), _mm512_unpackhi_epi8(low_even, even),
           _mm512_unpacklo_epi8(low_odd, odd), _mm512_unpackhi_epi8(low_odd, odd)}};
}

// A run's x in the order of the pairs: the even columns' vector of each step and the odd ones'.
struct RunX {
  alignas(64) float at[kFusedRows][kRunSteps][2][16];
};

GLYD_AVX512_INLINE void OrderX(const float* x, uint64_t x_stride, uint64_t m, uint64_t steps,
                               RunX* out) {
  const __m512i even = _mm512_set_epi32(7, 3, 7, 3, 6, 2, 6, 2, 5, 1, 5, 1, 4, 0, 4, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(8));
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t s = 0; s < steps; ++s) {
      const __m512 both = _mm512_loadu_ps(x + i * x_stride + kStepCols * s);
      _mm512_store_ps(out->at[i][s][0], _mm512_permutexvar_ps(even, both));
      _mm512_store_ps(out->at[i][s][1], _mm512_permutexvar_ps(odd, both));
    }
}

// kRows rows of x from row i0 by kGroups groups at a time: 16 vectors of sums, which are kept as
// [row][group][vector] between runs.
template <int kRows, int kGroups>
GLYD_AVX512_INLINE void MultiplyRun(__m512i hb, const uint8_t* data, uint64_t steps, const RunX& x,
                                    uint64_t i0, const Patches& patches, float* sums) {
  const __m512i odd_bits = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  float* const row = sums + i0 * kSumFloats;
  for (int g0 = 0; g0 < 8; g0 += kGroups) {
    __m512 sum[kRows][kGroups][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int g = 0; g < kGroups; ++g)
        for (int v = 0; v < kVectors; ++v)
          sum[i][g][v] = _mm512_loadu_ps(row + i * kSumFloats + 16 * (kVectors * (g0 + g) + v));
    for (uint64_t s = 0; s < steps; ++s) {
      const uint8_t* const step = data + kMma12StepBytes * s;
      for (int g = 0; g < kGroups; ++g) {
        // One pass for four rows of x asks for all that is ahead, a third of a step's lines a
        // group.
        if (i0 == 0)
          for (int line = 3 * (g0 + g); line < 3 * (g0 + g) + 3; ++line) {
            Prefetch<_MM_HINT_T1>(step + kFarSteps * kMma12StepBytes + 64 * line);
            Prefetch<_MM_HINT_T0>(step + kRunSteps * kMma12StepBytes + 64 * line);
          }
        Group w = DecodeGroup(hb, step, g0 + g);
        if (__builtin_expect(patches.groups[s] >> (g0 + g) & 1, 0))
          for (int v = 0; v < kVectors; ++v)
            w.pairs[v] = _mm512_xor_si512(w.pairs[v], Load(patches.at[s][g0 + g][v]));
        for (int v = 0; v < kVectors; ++v) {
          const __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(w.pairs[v], 16));
          const __m512 second = _mm512_castsi512_ps(_mm512_and_si512(w.pairs[v], odd_bits));
          for (int i = 0; i < kRows; ++i) {
            const float(&xs)[2][16] = x.at[i0 + static_cast<uint64_t>(i)][s];
            sum[i][g][v] = _mm512_fmadd_ps(first, _mm512_load_ps(xs[0]), sum[i][g][v]);
            sum[i][g][v] = _mm512_fmadd_ps(second, _mm512_load_ps(xs[1]), sum[i][g][v]);
          }
        }
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int g = 0; g < kGroups; ++g)
        for (int v = 0; v < kVectors; ++v)
          _mm512_storeu_ps(row + i * kSumFloats + 16 * (kVectors * (g0 + g) + v), sum[i][g][v]);
  }
}

// From [group][vector][pairs] to [g][pair][two rows][8].
GLYD_AVX512_INLINE void OrderSums(float* sums) {
  // The vectors' n are 0 2, 4 6, 1 3, 5 7, the pairs' 0 2, 1 3, 4 6, 5 7.
  constexpr int kPair[kVectors] = {0, 2, 1, 3};
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  for (int g = 0; g < 8; ++g) {
    __m512 v[kVectors];
    for (int i = 0; i < kVectors; ++i)
      v[i] = _mm512_permutexvar_ps(order, _mm512_loadu_ps(sums + 16 * (kVectors * g + i)));
    for (int i = 0; i < kVectors; ++i) _mm512_storeu_ps(sums + SumsAt(g, kPair[i]), v[i]);
  }
}

}  // namespace

GLYD_AVX512 void FusedMma12(const StepCodes& codes, const uint8_t* data, const uint32_t* side,
                            const int32_t* base, uint64_t steps, const float* x, uint64_t x_stride,
                            uint64_t m, float* sums) {
  // Zero between runs: XORed a second time, patches are gone.
  static thread_local Patches patches;
  RunX run_x;
  const __m512i hb = _mm512_set1_epi8(static_cast<char>(codes.hb));
  std::memset(sums, 0, m * kSumFloats * sizeof *sums);
  for (uint64_t s = 0; s < steps; s += kRunSteps, data += kMma12StepBytes * kRunSteps) {
    const uint64_t n = steps - s < kRunSteps ? steps - s : kRunSteps;
    AddPatches(side, base + s, n, &patches);
    OrderX(x + kStepCols * s, x_stride, m, n, &run_x);
    uint64_t i = 0;
    for (; i + 4 <= m; i += 4) MultiplyRun<4, 1>(hb, data, n, run_x, i, patches, sums);
    switch (m - i) {
      case 3:
        MultiplyRun<3, 1>(hb, data, n, run_x, i, patches, sums);
        break;
      case 2:
        MultiplyRun<2, 2>(hb, data, n, run_x, i, patches, sums);
        break;
      case 1:
        MultiplyRun<1, 4>(hb, data, n, run_x, i, patches, sums);
        break;
    }
    AddPatches(side, base + s, n, &patches);
  }
  for (uint64_t i = 0; i < m; ++i) OrderSums(sums + i * kSumFloats);
}

}  // namespace glyd::internal::avx512

#endif  // __x86_64__
