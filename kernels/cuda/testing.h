#ifndef GLYD_KERNELS_CUDA_TESTING_H_
#define GLYD_KERNELS_CUDA_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/emulated.h"
#include "kernels/decode/device_pack.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

namespace glyd::gpu {

// Numbers at an address as cudaMalloc gives it.
template <typename T>
class Aligned {
 public:
  explicit Aligned(size_t n) : bytes_(n * sizeof(T) + 256), n_(n) {}
  explicit Aligned(const std::vector<T>& v) : Aligned(v.size()) {
    std::copy(v.begin(), v.end(), data());
  }
  T* data() {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>((at + 255) & ~uintptr_t{255});
  }
  size_t size() const { return n_; }
  size_t bytes() const { return n_ * sizeof(T); }
  std::vector<T> vector() { return std::vector<T>(data(), data() + n_); }

 private:
  std::vector<uint8_t> bytes_;
  size_t n_;
};

// Weights of a normal distribution, as a trained matrix has them: 10.7 bits each in layout mma.
inline std::vector<uint16_t> NormalWeights(size_t n, uint64_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<uint16_t> w(n);
  for (uint16_t& v : w) v = simt::FloatToBf16(normal(random));
  return w;
}

struct WeightCase {
  const char* name;
  std::vector<uint16_t> (*make)(size_t n, uint64_t seed);
};

inline const std::vector<WeightCase>& WeightCases() {
  static const auto* cases = new std::vector<WeightCase>{
      {"normal", NormalWeights},
      {"model", [](size_t n, uint64_t seed) { return glyd::testing::Weights(n, 0.0005, seed); }},
      {"tenth", [](size_t n, uint64_t seed) { return glyd::testing::Weights(n, 0.1, seed); }},
      {"random", [](size_t n, uint64_t seed) { return glyd::testing::Weights(n, 1, seed); }},
      {"zero", [](size_t n, uint64_t) { return std::vector<uint16_t>(n); }},
      {"patterns",
       [](size_t n, uint64_t seed) {
         std::vector<uint16_t> w(n);
         for (size_t i = 0; i < n; ++i) w[i] = static_cast<uint16_t>(i * 40503 + seed);
         return w;
       }},
      // Every weight an exception, or of the deepest tier: exponents so far apart that no window
      // holds two.
      {"far", [](size_t n, uint64_t seed) {
         std::vector<uint16_t> w(n);
         for (size_t i = 0; i < n; ++i)
           w[i] = static_cast<uint16_t>(((i * 7 + seed) % 15 * 17) << 7 | (i & 0x807F));
         return w;
       }}};
  return *cases;
}

// A pack in memory aligned as a device's is, the kernels' view of it.
class PackOnDevice {
 public:
  explicit PackOnDevice(const EncodedPack& p)
      : meta(p.meta), data_(p.data), side_(p.side), base_(p.base) {
    view.data = data_.data();
    view.side = side_.data();
    view.base = base_.data();
    if (meta.layout == Layout::kMma12)
      view.codes[0] = meta.hb * 0x01010101u;
    else
      std::memcpy(view.codes, meta.tiers.data(), sizeof view.codes);
    view.row_steps = static_cast<int64_t>(meta.cols) / kStepCols;
  }
  void AddTo(simt::Memory* memory) {
    memory->AddRead("data", data_.data(), data_.bytes());
    memory->AddRead("side", side_.data(), side_.bytes());
    memory->AddRead("base", base_.data(), base_.bytes());
  }
  uint64_t bytes() const { return data_.bytes() + side_.bytes() + base_.bytes(); }

  const PackMeta meta;
  DevicePack view = {};

 private:
  Aligned<uint8_t> data_, side_;
  Aligned<int32_t> base_;
};

inline uint64_t PackBytesRead(const simt::Memory& memory) {
  return 32 * (memory.traffic("data").read_sectors + memory.traffic("side").read_sectors +
               memory.traffic("base").read_sectors);
}

inline std::vector<uint16_t> Activations(size_t n, uint64_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<uint16_t> x(n);
  for (uint16_t& v : x) v = simt::FloatToBf16(normal(random));
  return x;
}

// |y - yref| / |yref| over the whole product, in fp64.
inline double RelativeError(const std::vector<uint16_t>& w, const uint16_t* x, const uint16_t* bias,
                            int64_t m, int64_t rows, int64_t cols, const uint16_t* y) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t o = 0; o < rows; ++o) {
      double sum = bias == nullptr ? 0 : simt::Bf16ToFloat(bias[o]);
      for (int64_t k = 0; k < cols; ++k)
        sum += double{simt::Bf16ToFloat(w[o * cols + k])} * simt::Bf16ToFloat(x[i * cols + k]);
      const double is = simt::Bf16ToFloat(y[i * rows + o]);
      off += (is - sum) * (is - sum);
      all += sum * sum;
    }
  return all == 0 ? std::sqrt(off) : std::sqrt(off / all);
}

inline const char* const kOrderNames[] = {"forward", "reverse", "shuffled"};

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_CUDA_TESTING_H_
