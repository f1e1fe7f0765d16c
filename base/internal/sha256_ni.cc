#include "base/internal/sha256_ni.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

namespace glyd::internal {
namespace {

// AVX for its three-operand forms, 5% faster; a processor with SHA instructions and no AVX takes
// OpenSSL.
#define GLYD_SHA __attribute__((target("sha,avx")))

alignas(64) constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The instructions hold the eight words as two vectors, A B E F and C D G H from the highest lane
// down.
struct State {
  __m128i abef, cdgh;
};

GLYD_SHA inline State LoadState(const uint32_t h[8]) {
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(h));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(h + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  return {_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xF0)};
}

GLYD_SHA inline void StoreState(const State& s, uint32_t h[8]) {
  const __m128i feba = _mm_shuffle_epi32(s.abef, 0x1B), dchg = _mm_shuffle_epi32(s.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// `kStreams` messages in step: a round waits 4 cycles for the one before, and the other message
// fills them.
template <int kStreams>
GLYD_SHA inline __attribute__((always_inline)) void Compress(uint32_t* const (&h)[kStreams],
                                                             const uint8_t* (&data)[kStreams],
                                                             size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203);
  State state[kStreams];
  for (int s = 0; s < kStreams; ++s) state[s] = LoadState(h[s]);
  for (; blocks > 0; --blocks) {
    const State before[2] = {state[0], state[kStreams - 1]};
    __m128i w[kStreams][4];  // the schedule's last 16 words
    for (int s = 0; s < kStreams; ++s)
      for (int i = 0; i < 4; ++i)
        w[s][i] = _mm_shuffle_epi8(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(data[s] + 16 * i)), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRoundConstants + 4 * i));
#pragma GCC unroll 2
      for (int s = 0; s < kStreams; ++s) {
        __m128i(&m)[4] = w[s];
        const __m128i words = _mm_add_epi32(m[i & 3], k);
        state[s].cdgh = _mm_sha256rnds2_epu32(state[s].cdgh, state[s].abef, words);
        state[s].abef =
            _mm_sha256rnds2_epu32(state[s].abef, state[s].cdgh, _mm_shuffle_epi32(words, 0x0E));
        if (i >= 12) continue;
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(m[i & 3], m[(i + 1) & 3]),
                                          _mm_alignr_epi8(m[(i + 3) & 3], m[(i + 2) & 3], 4));
        m[i & 3] = _mm_sha256msg2_epu32(sum, m[(i + 3) & 3]);
      }
    }
    for (int s = 0; s < kStreams; ++s) {
      state[s].abef = _mm_add_epi32(state[s].abef, before[s].abef);
      state[s].cdgh = _mm_add_epi32(state[s].cdgh, before[s].cdgh);
      data[s] += 64;
    }
  }
  for (int s = 0; s < kStreams; ++s) StoreState(state[s], h[s]);
}

bool Detect() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & 1u << 29) != 0 &&
         __builtin_cpu_supports("avx");
}

}  // namespace

bool HasShaInstructions() {
  static const bool has = Detect();
  return has;
}

GLYD_SHA void CompressNi(uint32_t state[8], const uint8_t* data, size_t blocks) {
  uint32_t* const states[1] = {state};
  const uint8_t* messages[1] = {data};
  Compress<1>(states, messages, blocks);
}

GLYD_SHA void CompressPairNi(uint32_t state_a[8], const uint8_t* data_a, uint32_t state_b[8],
                             const uint8_t* data_b, size_t blocks) {
  uint32_t* const states[2] = {state_a, state_b};
  const uint8_t* messages[2] = {data_a, data_b};
  Compress<2>(states, messages, blocks);
}

}  // namespace glyd::internal

#else

namespace glyd::internal {

bool HasShaInstructions() { return false; }
void CompressNi(uint32_t*, const uint8_t*, size_t) { std::abort(); }
void CompressPairNi(uint32_t*, const uint8_t*, uint32_t*, const uint8_t*, size_t) { std::abort(); }

}  // namespace glyd::internal

#endif
