#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "gmock/gmock.h"
#include "kernels/device/device.h"
#include "tests/fakecuda/process.h"

// What of the CUDA device no other device has. The conformance suite is in the same program.

namespace glyd {
namespace {

using ::testing::HasSubstr;

// GPUs that no other program shares, for the conformance suite too.
const bool tagged = ::setenv("FAKECUDA_TAG", std::to_string(::getpid()).c_str(), 1) == 0;

std::unique_ptr<Device> Cuda(Transport transport = Transport::kFd) {
  auto device = CreateDevice("cuda:0", 1, transport);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(CudaDeviceTest, NamesTheGpusThatThereAre) {
  ::setenv("FAKECUDA_DEVICES", "2", 1);
  EXPECT_EQ((*CreateDevice("cuda:1", 1))->info().name, "cuda:1");
  const absl::Status s = CreateDevice("cuda:2", 1).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("host, cuda:0, cuda:1"));
}

TEST(CudaDeviceTest, WithoutAGpuItSaysWhy) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const absl::Status s = CreateDevice("cuda:0", 1).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("finds no GPU"));
}

TEST(CudaDeviceTest, MemoryOfAnotherGpuIsRefused) {
  ::setenv("FAKECUDA_DEVICES", "2", 1);
  const auto a = Cuda();
  const auto b = *CreateDevice("cuda:1", 1);
  const auto m = *a->Allocate(1, "x");
  uint8_t byte;
  EXPECT_EQ(b->OpenWindow(*m, 0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(b->CopyOut(*m, 0, &byte, 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CudaDeviceTest, AFullGpuSaysHowMuchItHas) {
  ::setenv("FAKECUDA_MEMORY", "8388608", 1);
  for (const Transport t : {Transport::kFd, Transport::kCudaIpc}) {
    const auto device = Cuda(t);
    const auto m = device->Allocate(6 << 20, "most");
    ASSERT_TRUE(m.ok()) << m.status();
    EXPECT_EQ(*device->FreeBytes(), 2u << 20);
    const absl::Status s = device->Allocate(4 << 20, "more").status();
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(s.message()), HasSubstr("4194304 bytes for \"more\""));
    EXPECT_THAT(std::string(s.message()), HasSubstr("2097152 bytes free of 8388608"));
  }
}

TEST(CudaDeviceTest, ALostGpuIsToldApartAndStaysLost) {
  const auto device = Cuda();
  const auto m = *device->Allocate(1, "x");
  uint8_t byte;
  ASSERT_TRUE(device->CopyOut(*m, 0, &byte, 1).ok());
  ::setenv("FAKECUDA_FAIL", "cuMemcpyDtoHAsync:2=700", 1);
  const absl::Status lost = device->CopyOut(*m, 0, &byte, 1);
  EXPECT_EQ(ReasonOf(lost), "DEVICE_LOST");
  EXPECT_THAT(std::string(lost.message()), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(ReasonOf(device->CopyOut(*m, 0, &byte, 1)), "DEVICE_LOST");
  EXPECT_EQ(ReasonOf(device->Allocate(1, "y").status()), "DEVICE_LOST");
  EXPECT_EQ(ReasonOf(device->Finish(*m)), "DEVICE_LOST");
}

// A handle that another process made, as hex.
ExportedMemory FromHex(const std::string& hex, uint64_t bytes) {
  ExportedMemory e;
  e.transport = Transport::kCudaIpc;
  for (size_t i = 0; i < e.handle.size(); ++i)
    e.handle[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  e.bytes = bytes;
  return e;
}

class Handles : public fake::FakeCudaTest {
 protected:
  void SetUp() override {
    FakeCudaTest::SetUp();
    Start(other_);
    ASSERT_EQ(other_.Do("alloc x 1"), "0");
    ASSERT_EQ(other_.Do("put x 42"), "0");
    ASSERT_EQ(other_.Do("wait 0"), "0");
    handle_ = other_.Get("ipc x");
  }
  fake::Process other_;
  std::string handle_;
};

TEST_F(Handles, OneMappingAHandleCounted) {
  ::setenv("FAKECUDA_REOPEN", "208", 1);
  const auto device = Cuda(Transport::kCudaIpc);
  auto a = *device->Import(FromHex(handle_, kAllocationAlign), Access::kRead);
  auto b = device->Import(FromHex(handle_, kAllocationAlign), Access::kRead);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(a->data(), (*b)->data());
  a.reset();
  uint8_t byte = 0;
  EXPECT_TRUE(device->CopyOut(**b, 0, &byte, 1).ok());
  EXPECT_EQ(byte, 42);
  b->reset();
  // Closed with the last: else the driver would say 208.
  EXPECT_TRUE(device->Import(FromHex(handle_, kAllocationAlign), Access::kRead).ok());
}

TEST_F(Handles, ToldMoreBytesThanThereAre) {
  const auto device = Cuda(Transport::kCudaIpc);
  const absl::Status s =
      device->Import(FromHex(handle_, 2 * kAllocationAlign), Access::kRead).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(s.message()), HasSubstr("4194304 bytes told"));
  ::setenv("FAKECUDA_REOPEN", "208", 1);
  EXPECT_TRUE(device->Import(FromHex(handle_, kAllocationAlign), Access::kRead).ok());
}

TEST(CudaDeviceTest, ItsOwnHandleIsRefusedBeforeTheDriverIsAsked) {
  const auto device = Cuda(Transport::kCudaIpc);
  const auto m = *device->Allocate(1, "x");
  const absl::Status s = device->Import(*m->Export(), Access::kRead).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(s.message()), HasSubstr("this process allocated it"));
}

TEST(CudaDeviceTest, AnImportToReadByDescriptorCannotBeSealedOrLentOn) {
  const auto device = Cuda();
  const auto m = *device->Allocate(1, "x");
  const auto again = device->Import(*m->Export(), Access::kRead);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->Seal().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*again)->Export().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CudaDeviceTest, NothingIsLeftWhenItGoes) {
  std::string dir = ::testing::TempDir() + "counters.XXXXXX";
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  ::setenv("FAKECUDA_COUNTERS", dir.c_str(), 1);
  const auto held = [&] {
    std::ifstream in(dir + "/" + std::to_string(::getpid()));
    std::map<std::string, long> counts;
    std::string name;
    for (long n; in >> name >> n;) counts[name] = n;
    return counts;
  };
  for (const Transport t : {Transport::kFd, Transport::kCudaIpc}) {
    auto device = Cuda(t);
    auto m = *device->Allocate(1, "x");
    auto window = device->OpenWindow(*m, 0, 100);
    ASSERT_TRUE(window.ok());
    ASSERT_TRUE(device->Commit(*m, 0, *window, 100).ok());
    ASSERT_TRUE(device->OpenWindow(*m, 0, 100).ok());
    EXPECT_EQ(held()[t == Transport::kFd ? "cuMemMap" : "cuMemAlloc"], 1);
    device.reset();
    m.reset();  // memory outlives its device
    ASSERT_FALSE(held().empty());
    for (const auto& [name, n] : held()) EXPECT_EQ(n, 0) << name;
  }
}

TEST(CudaDeviceTest, AFailedAllocationLeavesNothing) {
  const struct {
    Transport transport;
    const char* call;
  } cases[] = {{Transport::kFd, "cuMemCreate"},
               {Transport::kFd, "cuMemAddressReserve"},
               {Transport::kFd, "cuMemMap"},
               {Transport::kFd, "cuMemSetAccess"},
               {Transport::kFd, "cuMemsetD8Async"},
               {Transport::kCudaIpc, "cuMemAlloc"},
               {Transport::kCudaIpc, "cuIpcGetMemHandle"}};
  for (const auto& c : cases) {
    const auto device = Cuda(c.transport);
    const uint64_t before = *device->FreeBytes();
    std::string plan;  // whichever call of it is the next
    for (int i = 1; i < 40; ++i) absl::StrAppend(&plan, c.call, ":", i, "=801,");
    ::setenv("FAKECUDA_FAIL", plan.c_str(), 1);
    const absl::Status s = device->Allocate(1, "x").status();
    ::unsetenv("FAKECUDA_FAIL");
    EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented) << c.call << ": " << s;
    EXPECT_EQ(*device->FreeBytes(), before) << c.call;
  }
}

}  // namespace
}  // namespace glyd
