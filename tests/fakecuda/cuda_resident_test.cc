#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "packer/testing/fixtures.h"
#include "server/worker/operands.h"
#include "server/worker/resident.h"

// A worker's models in a GPU's memory: loaded, checked, hashed and multiplied with.

namespace glyd {
namespace {

using ::testing::ElementsAre;

const bool tagged = ::setenv("FAKECUDA_TAG", std::to_string(::getpid()).c_str(), 1) == 0;

class CudaResident : public ::testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    const std::string model = dir_ / "model", save = dir_ / "save";
    glyd::testing::WriteModel(model, glyd::testing::TinyTensors());
    ASSERT_TRUE(glyd::testing::Pack(model, save).ok());
    device_ = *CreateDevice("cuda:0", 2, GetParam());
  }
  absl::StatusOr<std::unique_ptr<ResidentModel>> Load(const std::string& save, bool verify) {
    auto dir = Dir::Open(save);
    if (!dir.ok()) return dir.status();
    return ResidentModel::Load(
        *device_, *dir, "tiny", verify, 2, [](const auto&) { return true; }, progress_);
  }

  glyd::testing::TempDir dir_;
  Progress progress_;
  std::unique_ptr<Device> device_;
};

TEST_P(CudaResident, LoadsVerifiesAndHashesAgain) {
  const auto model = Load(dir_ / "save", true);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_GT((*model)->table().packs_size(), 0);
  const auto bad = (*model)->Verify(*device_, 2, progress_);
  ASSERT_TRUE(bad.ok()) << bad.status();
  EXPECT_THAT(*bad, ElementsAre());
}

TEST_P(CudaResident, AByteThatChangedOnTheWayIsFound) {
  const std::string save = dir_ / "save";
  for (const std::string& name : glyd::testing::ListDir(save)) {
    if (name.find(".safetensors") == std::string::npos) continue;
    std::string bytes = glyd::testing::ReadFile(save + "/" + name);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    glyd::testing::WriteFile(save + "/" + name, bytes);
  }
  EXPECT_EQ(Load(save, true).status().code(), absl::StatusCode::kDataLoss);
}

TEST_P(CudaResident, MultipliesWhatCameByAMessageAsTheHostDoes) {
  const auto model = Load(dir_ / "save", false);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto host_device = CreateHostDevice(1);
  auto dir = Dir::Open(dir_ / "save");
  const auto on_host = ResidentModel::Load(
      *host_device, *dir, "tiny", false, 1, [](const auto&) { return true; }, progress_);
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  for (const auto& p : (*model)->table().packs()) {
    const uint64_t m = 3;
    std::vector<uint16_t> x(m * p.cols()), bias(p.rows(), 0x3f80), y(m * p.rows()), want(y.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3f00 + i % 200);
    Operands operands(*device_);
    LinearArgs args;
    args.pack = *(*model)->FindPack(p.name());
    args.m = m;
    args.x = *operands.In(x.data(), x.size());
    args.bias = *operands.In(bias.data(), bias.size());
    args.y = *operands.Out(y.data(), y.size());
    const absl::Status s = device_->Linear(args);
    ASSERT_TRUE(s.ok()) << s;
    ASSERT_TRUE(operands.Collect().ok());
    LinearArgs there;
    there.pack = *(*on_host)->FindPack(p.name());
    there.m = m;
    there.x = x.data();
    there.bias = bias.data();
    there.y = want.data();
    ASSERT_TRUE(host_device->Linear(there).ok());
    EXPECT_EQ(y, want) << p.name();
  }
}

TEST_P(CudaResident, ALostGpuEndsALoadAndIsNoBadPack) {
  std::string plan;
  for (int i = 2; i < 100; ++i) plan += "cuMemcpyDtoHAsync:" + std::to_string(i) + "=719,";
  ::setenv("FAKECUDA_FAIL", plan.c_str(), 1);
  EXPECT_EQ(ReasonOf(Load(dir_ / "save", false).status()), "DEVICE_LOST");
}

TEST(OperandsTest, OnTheHostNumbersStayWhereTheyAre) {
  const auto host = CreateHostDevice(1);
  Operands operands(*host);
  std::vector<uint16_t> x(5), y(5);
  EXPECT_EQ(*operands.In(x.data(), x.size()), x.data());
  EXPECT_EQ(*operands.Out(y.data(), y.size()), y.data());
  EXPECT_TRUE(operands.Collect().ok());
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaResident, ::testing::Values(Transport::kFd, Transport::kCudaIpc),
                         [](const auto& info) {
                           return info.param == Transport::kFd ? "fd" : "cuda_ipc";
                         });

}  // namespace
}  // namespace glyd
