#include "kernels/device/cuda/driver.h"

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace glyd::cu {
namespace {

using ::testing::HasSubstr;

TEST(DriverStatus, CodesSayWhatToDoNext) {
  EXPECT_TRUE(ToStatus(kSuccess, "x").ok());
  const struct {
    Result result;
    absl::StatusCode code;
  } cases[] = {
      {kInvalidValue, absl::StatusCode::kInvalidArgument},
      {kOutOfMemory, absl::StatusCode::kResourceExhausted},
      {kInvalidDevice, absl::StatusCode::kNotFound},
      {kNotSupported, absl::StatusCode::kUnimplemented},
      {kInvalidContext, absl::StatusCode::kFailedPrecondition},
      {static_cast<Result>(12345), absl::StatusCode::kInternal},
  };
  for (const auto& c : cases) {
    const absl::Status s = ToStatus(c.result, "copying 7 bytes");
    EXPECT_EQ(s.code(), c.code) << s;
    EXPECT_FALSE(IsSticky(s));
    EXPECT_THAT(std::string(s.message()), HasSubstr("copying 7 bytes"));
    EXPECT_THAT(std::string(s.message()), HasSubstr(std::to_string(c.result)));
  }
}

TEST(DriverStatus, StickyErrorsAreToldApart) {
  for (const Result r : {kEccUncorrectable, kIllegalAddress, kLaunchTimeout, kAssert, kLaunchFailed,
                         kMisalignedAddress, kUnknown}) {
    EXPECT_TRUE(IsSticky(r));
    const absl::Status s = ToStatus(r, "a product");
    EXPECT_TRUE(IsSticky(s));
    EXPECT_EQ(s.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(s), "DEVICE_LOST");
  }
  for (const Result r : {kOutOfMemory, kInvalidValue, kNotReady, kLaunchOutOfResources})
    EXPECT_FALSE(IsSticky(r));
}

TEST(DriverText, UuidAsNvidiaSmiPrintsIt) {
  Uuid u;
  for (int i = 0; i < 16; ++i) u.bytes[i] = static_cast<unsigned char>(0xf0 + i);
  EXPECT_EQ(UuidText(u), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

}  // namespace
}  // namespace glyd::cu
