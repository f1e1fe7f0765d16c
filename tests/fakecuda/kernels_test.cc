#include <cstdlib>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/emulated.h"
#include "kernels/decode/unpack_body.h"
#include "kernels/device/cuda/driver.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

// The double as the project's own code meets it: found by name, called through the table of
// functions, and given the project's kernels to run.

namespace glyd::cu {
namespace {

class FakeCudaKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = GetDriver();
    ASSERT_TRUE(driver.ok()) << driver.status();
    cu_ = *driver;
    Context context;
    ASSERT_EQ(cu_->DevicePrimaryCtxRetain(&context, 0), kSuccess);
    ASSERT_EQ(cu_->CtxPushCurrent(context), kSuccess);
    ASSERT_EQ(cu_->StreamCreate(&stream_, kStreamNonBlocking), kSuccess);
  }
  void TearDown() override {
    for (const DevicePtr p : memory_) EXPECT_EQ(cu_->MemFree(p), kSuccess);
    EXPECT_EQ(cu_->StreamDestroy(stream_), kSuccess);
    EXPECT_EQ(cu_->CtxPopCurrent(nullptr), kSuccess);
    EXPECT_EQ(cu_->DevicePrimaryCtxRelease(0), kSuccess);
  }

  DevicePtr Allocate(size_t bytes) {
    DevicePtr p = 0;
    EXPECT_EQ(cu_->MemAlloc(&p, bytes), kSuccess);
    memory_.push_back(p);
    return p;
  }
  // The numbers in device memory, where a kernel finds them.
  template <typename T>
  const T* Upload(const std::vector<T>& v) {
    const DevicePtr p = Allocate(v.size() * sizeof(T) + 1);
    EXPECT_EQ(cu_->MemcpyHtoDAsync(p, v.data(), v.size() * sizeof(T), stream_), kSuccess);
    return reinterpret_cast<const T*>(p);
  }
  template <typename T>
  std::vector<T> Download(const T* from, size_t n) {
    std::vector<T> v(n);
    EXPECT_EQ(
        cu_->MemcpyDtoHAsync(v.data(), reinterpret_cast<DevicePtr>(from), n * sizeof(T), stream_),
        kSuccess);
    EXPECT_EQ(cu_->StreamSynchronize(stream_), kSuccess);
    return v;
  }

  const Driver* cu_ = nullptr;
  Stream stream_ = nullptr;
  std::vector<DevicePtr> memory_;
};

TEST_F(FakeCudaKernels, MemoryRoundTrip) {
  const std::vector<uint16_t> w = glyd::testing::Weights(3 << 20, 0.01, 11);
  EXPECT_EQ(Download(Upload(w), w.size()), w);
}

struct UnpackCase {
  Layout layout;
  const char* kernel;
};

class FakeCudaUnpack : public FakeCudaKernels, public ::testing::WithParamInterface<UnpackCase> {};

TEST_P(FakeCudaUnpack, AKernelDecodesAPackInDeviceMemory) {
  const uint64_t rows = 128, cols = 272;
  const std::vector<uint16_t> w = glyd::testing::Weights(rows * cols, 0.01, 5);
  const auto pack = Encode(GetParam().layout, rows, cols, w.data());
  ASSERT_TRUE(pack.ok()) << pack.status();

  gpu::UnpackArgs args = {};
  args.pack.data = Upload(pack->data);
  args.pack.side = Upload(pack->side);
  args.pack.base = Upload(pack->base);
  if (GetParam().layout == Layout::kMma12)
    args.pack.codes[0] = pack->meta.hb * 0x01010101u;
  else
    std::memcpy(args.pack.codes, pack->meta.tiers.data(), sizeof args.pack.codes);
  args.pack.row_steps = cols / 16;
  args.rows = rows;
  args.out = reinterpret_cast<uint16_t*>(Allocate(w.size() * 2));

  Module module;
  ASSERT_EQ(cu_->ModuleLoadData(&module, "fakecuda image"), kSuccess);
  Function function;
  ASSERT_EQ(cu_->ModuleGetFunction(&function, module, GetParam().kernel), kSuccess);
  const gpu::EmulatedKernel& k = gpu::FindEmulated(GetParam().kernel);
  const int shared = static_cast<int>(k.shared_bytes);
  ASSERT_EQ(cu_->FuncSetAttribute(function, kFuncMaxDynamicSharedSizeBytes, shared), kSuccess);
  void* parameters[] = {&args};
  ASSERT_EQ(
      cu_->LaunchKernel(function, 2, 1, 1, k.threads, 1, 1, shared, stream_, parameters, nullptr),
      kSuccess);
  const uint16_t* out = args.out;
  args = {};  // the launch has its own copy
  EXPECT_EQ(Download(out, w.size()), w);
  EXPECT_EQ(cu_->ModuleUnload(module), kSuccess);
}

// Reads a pack of one step where none was ever mapped: what the GPU answers, and the log.
[[noreturn]] void ReadUnmappedPack() {
  const Driver& cu = **GetDriver();
  Context context;
  Module module;
  Function function;
  cu.DevicePrimaryCtxRetain(&context, 0);
  cu.CtxPushCurrent(context);
  cu.ModuleLoadData(&module, "fakecuda image");
  cu.ModuleGetFunction(&function, module, "glyd_mma12_unpack");
  const gpu::EmulatedKernel& k = gpu::FindEmulated("glyd_mma12_unpack");
  const int shared = static_cast<int>(k.shared_bytes);
  cu.FuncSetAttribute(function, kFuncMaxDynamicSharedSizeBytes, shared);
  gpu::UnpackArgs args = {};
  args.pack.row_steps = 1;
  args.rows = 64;
  void* parameters[] = {&args};
  const Result launched =
      cu.LaunchKernel(function, 1, 1, 1, k.threads, 1, 1, shared, nullptr, parameters, nullptr);
  std::exit(launched == kSuccess ? cu.CtxSynchronize() % 256 : 0);
}

TEST(FakeCudaKernelsDeathTest, WhatTheEmulatorFindsIsError700) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child has a driver of its own
  ::setenv("FAKECUDA_LOG", "/dev/stderr", 1);
  EXPECT_EXIT(ReadUnmappedPack(), ::testing::ExitedWithCode(kIllegalAddress % 256),
              "glyd_mma12_unpack: .*in no buffer of global memory");
}

INSTANTIATE_TEST_SUITE_P(Layouts, FakeCudaUnpack,
                         ::testing::Values(UnpackCase{Layout::kMma, "glyd_mma_unpack"},
                                           UnpackCase{Layout::kMma12, "glyd_mma12_unpack"}),
                         [](const auto& i) { return std::string(LayoutName(i.param.layout)); });

}  // namespace
}  // namespace glyd::cu
