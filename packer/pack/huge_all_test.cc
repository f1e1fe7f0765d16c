#include <filesystem>

#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"
#include "packer/testing/huge.h"

namespace glyd {
namespace {

TEST(HugeAllTest, OneTensorOf3GiBInBothLayoutsAndBack) {
  const testing::TempDir t;
  for (const Layout layout : {Layout::kMma12, Layout::kMma}) {
    if (!testing::PackAndVerify3GiB(t, layout)) GTEST_SKIP() << "no room for 12 GiB";
    const uint64_t peak =
        testing::PeakBytes([&] { return testing::Unpack(t / "out", t / "back"); });
    EXPECT_LT(peak, testing::kMemoryBound);
    EXPECT_GT(std::filesystem::file_size(t / "back/model.safetensors"), uint64_t{3} << 30);
    std::filesystem::remove_all(t / "back");
  }
}

}  // namespace
}  // namespace glyd
