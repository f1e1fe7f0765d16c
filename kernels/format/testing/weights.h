#ifndef GLYD_KERNELS_FORMAT_TESTING_WEIGHTS_H_
#define GLYD_KERNELS_FORMAT_TESTING_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace glyd::testing {

// Made-up bf16 matrices for tests and benchmarks.

// A xorshift generator; the sequence that docs/format.md, "Known digests", fixes for a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : x_(seed * 0x9E3779B97F4A7C15u | 1) {}
  uint64_t Next() {
    x_ ^= x_ << 13;
    x_ ^= x_ >> 7;
    x_ ^= x_ << 17;
    return x_;
  }
  uint64_t Below(uint64_t n) { return Next() % n; }

 private:
  uint64_t x_;
};

// `n` weights whose exponents look like a model's, but for a share `wild` (0-1) of any bits.
inline std::vector<uint16_t> Weights(size_t n, double wild, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> w(n);
  for (uint16_t& v : w) {
    const uint64_t r = random.Next();
    const uint64_t sign = (r & 1) << 15;
    if (static_cast<double>((r >> 8) % 1000000) / 1e6 < wild) {
      v = static_cast<uint16_t>(sign | (r >> 32 & 0x7FFF));
    } else {
      const uint64_t exponent = 115 + (r >> 40) % 12 + (r >> 48) % 3;
      v = static_cast<uint16_t>(sign | exponent << 7 | (r >> 20 & 0x7F));
    }
  }
  return w;
}

// Each of the 65536 bit patterns once: a 256 x 256 matrix.
inline std::vector<uint16_t> EveryPattern() {
  std::vector<uint16_t> w(1 << 16);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<uint16_t>(i ^ 0x8000);
  return w;
}

}  // namespace glyd::testing

#endif  // GLYD_KERNELS_FORMAT_TESTING_WEIGHTS_H_
