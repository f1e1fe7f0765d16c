#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/capi/glyd_gpu.h"
#include "kernels/device/cuda/driver.h"
#include "kernels/format/pack.h"
#include "kernels/simt/simt.h"

// libglyd_gpu.so as a program calls it, on the double, whose kernels are the emulated ones:
// launches, grids, workspaces and counters are the library's own.

namespace glyd::cu {
namespace {

constexpr int64_t kRows = 192, kCols = 192;

std::vector<uint16_t> Normal(size_t n, float deviation, uint64_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<uint16_t> v(n);
  for (uint16_t& x : v) x = simt::FloatToBf16(normal(random));
  return v;
}

class CApiProducts : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    if (glyd_gpu_cuda_version() == 0) GTEST_SKIP() << "built without CUDA kernels";
    const auto driver = GetDriver();
    ASSERT_TRUE(driver.ok()) << driver.status();
    cu_ = *driver;
    Context context;
    ASSERT_EQ(cu_->DevicePrimaryCtxRetain(&context, 0), kSuccess);
    ASSERT_EQ(cu_->CtxPushCurrent(context), kSuccess);
    w_ = Normal(kRows * kCols, 0.02f, 1);
    w_[5] = 0x7F00, w_[700] = 0, w_[9000] = 0x0001;  // exceptions, and the deepest tier
    pack_ = *Encode(GetParam(), kRows, kCols, w_.data());
    data_ = Upload(pack_.data);
    side_ = Upload(pack_.side);
    base_ = Upload(pack_.base);
    if (GetParam() == Layout::kMma12)
      codes_[0] = pack_.meta.hb * 0x01010101u;
    else
      std::copy_n(pack_.meta.tiers.begin(), 3, codes_);
  }
  void TearDown() override {
    if (cu_ == nullptr) return;
    for (const DevicePtr p : memory_) EXPECT_EQ(cu_->MemFree(p), kSuccess);
    EXPECT_EQ(cu_->CtxPopCurrent(nullptr), kSuccess);
    EXPECT_EQ(cu_->DevicePrimaryCtxRelease(0), kSuccess);
  }

  template <typename T>
  T* Device(size_t n) {
    DevicePtr p = 0;
    EXPECT_EQ(cu_->MemAlloc(&p, std::max<size_t>(n, 1) * sizeof(T)), kSuccess);
    EXPECT_EQ(cu_->MemsetD8Async(p, 0, std::max<size_t>(n, 1) * sizeof(T), nullptr), kSuccess);
    memory_.push_back(p);
    return reinterpret_cast<T*>(p);
  }
  template <typename T>
  T* Upload(const std::vector<T>& v) {
    T* p = Device<T>(v.size());
    EXPECT_EQ(cu_->MemcpyHtoDAsync(reinterpret_cast<DevicePtr>(p), v.data(), v.size() * sizeof(T),
                                   nullptr),
              kSuccess);
    return p;
  }
  template <typename T>
  std::vector<T> Download(const T* from, size_t n) {
    std::vector<T> v(n);
    EXPECT_EQ(
        cu_->MemcpyDtoHAsync(v.data(), reinterpret_cast<DevicePtr>(from), n * sizeof(T), nullptr),
        kSuccess);
    EXPECT_EQ(cu_->CtxSynchronize(), kSuccess);
    return v;
  }

  bool mma() const { return GetParam() == Layout::kMma; }
  int Linear(const uint16_t* x, int64_t m, const uint16_t* bias, uint16_t* y, int64_t route,
             void* workspace, size_t bytes, int* done) {
    return mma() ? glyd_gpu_mma_linear(data_, side_, base_, codes_, kRows, kCols, x, m, bias, y,
                                       route, workspace, bytes, done, nullptr)
                 : glyd_gpu_mma12_linear(data_, reinterpret_cast<uint32_t*>(side_), base_, codes_,
                                         kRows, kCols, x, m, bias, y, route, workspace, bytes, done,
                                         nullptr);
  }
  double Error(const std::vector<uint16_t>& x, const std::vector<uint16_t>& bias, int64_t m,
               const std::vector<uint16_t>& y) const {
    double off = 0, all = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t o = 0; o < kRows; ++o) {
        if (o == 0)
          continue;  // its row has the one weight that is as large as all others are small
        double sum = simt::Bf16ToFloat(bias[o]);
        for (int64_t k = 0; k < kCols; ++k)
          sum += double{simt::Bf16ToFloat(w_[o * kCols + k])} * simt::Bf16ToFloat(x[i * kCols + k]);
        const double is = simt::Bf16ToFloat(y[i * kRows + o]);
        off += (is - sum) * (is - sum);
        all += sum * sum;
      }
    return std::sqrt(off / all);
  }

  const Driver* cu_ = nullptr;
  std::vector<DevicePtr> memory_;
  std::vector<uint16_t> w_;
  EncodedPack pack_;
  uint8_t *data_ = nullptr, *side_ = nullptr;
  int32_t* base_ = nullptr;
  uint32_t codes_[4] = {};
};

TEST_P(CApiProducts, LinearByEachRouteItTakes) {
  const std::vector<uint16_t> bias = Normal(kRows, 1, 2);
  const uint16_t* d_bias = Upload(bias);
  for (const int64_t m : {0, 1, 8, 9, 33, 64, 65, 200}) {
    const std::vector<uint16_t> x = Normal(m * kCols, 1, 3 + m);
    const uint16_t* d_x = Upload(x);
    for (const int64_t route : {-1, 1, 4, 0}) {
      if (route == 1 && m > 64) continue;
      size_t bytes = 0;
      ASSERT_EQ((mma() ? glyd_gpu_mma_linear_workspace : glyd_gpu_mma12_linear_workspace)(
                    kRows, kCols, m, route, &bytes),
                0);
      int* done = Device<int>(1024);
      uint16_t* y = Device<uint16_t>(m * kRows);
      uint8_t* workspace = Device<uint8_t>(bytes);
      std::vector<uint16_t> first;
      for (int run = 0; run < 2; ++run) {
        ASSERT_EQ(Linear(d_x, m, d_bias, y, route, workspace, bytes, done), 0) << m << ' ' << route;
        const std::vector<uint16_t> got = Download(y, m * kRows);
        if (run == 0) first = got;
        EXPECT_EQ(got, first) << m << ' ' << route;
      }
      if (m > 0) {
        EXPECT_LE(Error(x, bias, m, first), 6e-3) << m << ' ' << route;
      }
      EXPECT_THAT(Download(done, 1024), ::testing::Each(0)) << m << ' ' << route;
      if (bytes > 0 && m > 0) {
        EXPECT_EQ(Linear(d_x, m, d_bias, y, route, workspace, 1, done), kInvalidValue);
      }
    }
  }
}

TEST_P(CApiProducts, UnpackGivesEveryBit) {
  uint16_t* out = Device<uint16_t>(w_.size());
  for (const int64_t warps : {0, 1, 7}) {
    ASSERT_EQ(mma() ? glyd_gpu_mma_unpack(data_, side_, base_, codes_, kCols, 0, kRows, out, warps,
                                          nullptr)
                    : glyd_gpu_mma12_unpack(data_, reinterpret_cast<uint32_t*>(side_), base_,
                                            codes_, kCols, 0, kRows, out, warps, nullptr),
              0);
    EXPECT_EQ(Download(out, w_.size()), w_) << warps;
  }
}

// The matrix as three experts of 64 rows, by two calls that have the sums by weight.
TEST_P(CApiProducts, ExpertsRoutedMultipliedAndWeighted) {
  const int64_t tokens = 5, each = 2, experts = 3, rows = 64;
  const std::vector<int64_t> ids = {2, 0, 0, 2, 2, 2, 0, 2, 2, 0};
  const std::vector<uint16_t> x = Normal(tokens * kCols, 1, 4);
  std::vector<float> weights(tokens * each);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.25f + static_cast<float>(i % 3);
  const int64_t* d_ids = Upload(ids);
  const uint16_t* d_x = Upload(x);
  const float* d_weights = Upload(weights);
  int32_t* plan = Device<int32_t>(2 + 2 * experts + tokens * each);
  int* done = Device<int>(1024);
  uint16_t* y = Device<uint16_t>(tokens * rows);
  size_t bytes = 0;
  ASSERT_EQ(glyd_gpu_moe_route(d_ids, tokens * each, experts, plan, nullptr), 0);
  ASSERT_EQ((mma() ? glyd_gpu_mma_moe_workspace : glyd_gpu_mma12_moe_workspace)(
                experts, rows, kCols, tokens, each, 0, 1, &bytes),
            0);
  void* workspace = Device<uint8_t>(bytes);
  ASSERT_EQ(mma() ? glyd_gpu_mma_moe(data_, side_, base_, codes_, experts, rows, kCols, d_x, tokens,
                                     each, 1, plan, 0, nullptr, d_weights, 1, d_ids, y, workspace,
                                     bytes, done, nullptr)
                  : glyd_gpu_mma12_moe(data_, reinterpret_cast<uint32_t*>(side_), base_, codes_,
                                       experts, rows, kCols, d_x, tokens, each, 1, plan, 0, nullptr,
                                       d_weights, 1, d_ids, y, workspace, bytes, done, nullptr),
            0);
  const std::vector<uint16_t> got = Download(y, tokens * rows);
  double off = 0, all = 0;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t o = 1; o < rows; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < each; ++k)
        for (int64_t c = 0; c < kCols; ++c)
          sum += double{weights[t * each + k]} *
                 simt::Bf16ToFloat(w_[(ids[t * each + k] * rows + o) * kCols + c]) *
                 simt::Bf16ToFloat(x[t * kCols + c]);
      const double is = simt::Bf16ToFloat(got[t * rows + o]);
      off += (is - sum) * (is - sum);
      all += sum * sum;
    }
  EXPECT_LE(std::sqrt(off / all), 6e-3);
}

TEST_P(CApiProducts, KernelsAreForgottenWithTheirContext) {
  int64_t gpu = 0;
  EXPECT_EQ(glyd_gpu_gpu(&gpu), 0);
  EXPECT_EQ(gpu, 90);
  EXPECT_EQ(glyd_gpu_hold(1000, nullptr), 0);
  EXPECT_EQ(cu_->CtxSynchronize(), kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CApiProducts, ::testing::Values(Layout::kMma, Layout::kMma12),
                         [](const auto& i) { return std::string(LayoutName(i.param)); });

}  // namespace
}  // namespace glyd::cu
