#ifndef GLYD_KERNELS_SIMT_SIMT_H_
#define GLYD_KERNELS_SIMT_SIMT_H_

#include <cstdint>

// What a kernel body may use besides its Lane. The one header that asks which compiler reads it.
#if defined(__CUDACC__)
#define GLYD_DEVICE __device__ __forceinline__
#define GLYD_UNROLL _Pragma("unroll")
#else
#include <bit>
#include <cmath>
#define GLYD_DEVICE inline
#define GLYD_UNROLL
#endif

namespace glyd::simt {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Sixteen bytes that are loaded and stored as one; the address is a multiple of 16.
struct alignas(16) U4 {
  uint32_t v[4];
};

// Bytes of `a` (0-3) and `b` (4-7) as the lowest four nibbles of `selector` name them, the lowest
// first. Each of the four is below 8; what is above them does not matter.
GLYD_DEVICE uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDACC__)
  uint32_t out;  // __byte_perm would mask the selector first
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
#else
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
#endif
}

// `v`, in a register from here on: a compiler would read a kernel's argument anew at each use.
GLYD_DEVICE uint32_t Keep(uint32_t v) {
#if defined(__CUDACC__)
  uint32_t out;
  asm volatile("mov.b32 %0, %1;" : "=r"(out) : "r"(v));
  return out;
#else
  return v;
#endif
}

GLYD_DEVICE uint32_t RotateLeft(uint32_t v, int by) {
#if defined(__CUDACC__)
  return __funnelshift_l(v, v, by);
#else
  return std::rotl(v, by);
#endif
}

GLYD_DEVICE uint32_t RotateRight(uint32_t v, int by) {
#if defined(__CUDACC__)
  return __funnelshift_r(v, v, by);
#else
  return std::rotr(v, by);
#endif
}

// The low word of the 64 bits `high`, `low` shifted right by `by` mod 32.
GLYD_DEVICE uint32_t FunnelRight(uint32_t low, uint32_t high, int by) {
#if defined(__CUDACC__)
  return __funnelshift_r(low, high, by);
#else
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (by & 31));
#endif
}

GLYD_DEVICE int CountOnes(uint32_t v) {
#if defined(__CUDACC__)
  return __popc(v);
#else
  return std::popcount(v);
#endif
}

// Of a word that is not zero.
GLYD_DEVICE int LowestOne(uint32_t v) {
#if defined(__CUDACC__)
  return __ffs(v) - 1;
#else
  return std::countr_zero(v);
#endif
}

GLYD_DEVICE uint32_t FloatBits(float f) {
#if defined(__CUDACC__)
  return __float_as_uint(f);
#else
  return std::bit_cast<uint32_t>(f);
#endif
}

GLYD_DEVICE float BitsFloat(uint32_t bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

GLYD_DEVICE float Exp(float v) {
#if defined(__CUDACC__)
  return __expf(v);
#else
  return std::exp(v);
#endif
}

GLYD_DEVICE float Bf16ToFloat(uint32_t bits) { return BitsFloat(bits << 16); }

// To nearest even; every NaN is 0x7FC0, as the host's products give it.
GLYD_DEVICE uint16_t FloatToBf16(float f) {
  const uint32_t bits = FloatBits(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

}  // namespace glyd::simt

#endif  // GLYD_KERNELS_SIMT_SIMT_H_
