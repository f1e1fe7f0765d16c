#include "packer/testing/huge.h"

#include "absl/strings/str_cat.h"
#include "base/dir.h"
#include "gtest/gtest.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using testing::PeakBytes;
using testing::TempDir;
using testing::WriteSparse;

TEST(HugeTest, OneTensorOf3GiB) {
  const TempDir t;
  if (!testing::PackAndVerify3GiB(t, Layout::kMma12)) GTEST_SKIP() << "no room for 12 GiB";
}

// The headers of a 30 GB checkpoint are all that opening it takes.
TEST(HugeTest, Checkpoint30GB) {
  const TempDir t;
  constexpr uint64_t kTensorBytes = uint64_t{2} * 8192 * 16384;
  std::string index = R"({"weight_map":{)";
  for (int shard = 0; shard < 8; ++shard) {
    std::string header = "{";
    const std::string file = absl::StrCat("model-0000", shard + 1, "-of-00008.safetensors");
    for (int i = 0; i < 15; ++i) {
      const std::string name = absl::StrCat("t", shard, ".", i, ".weight");
      absl::StrAppend(&header, i == 0 ? "" : ",", "\"", name,
                      R"(":{"dtype":"BF16","shape":[8192,16384],"data_offsets":[)",
                      i * kTensorBytes, ",", (i + 1) * kTensorBytes, "]}");
      absl::StrAppend(&index, index.back() == '{' ? "" : ",", "\"", name, "\":\"", file, "\"");
    }
    WriteSparse(t / file, header + "}", 15 * kTensorBytes);
  }
  testing::WriteFile(t / "model.safetensors.index.json", index + "}}");
  EXPECT_LT(PeakBytes([&] {
              const auto c = Checkpoint::Open(*Dir::Open(t.path()));
              if (!c.ok()) return c.status();
              return c->tensors().size() == 120 ? absl::OkStatus() : absl::InternalError("not 120");
            }),
            128 * testing::kMiB);
}

}  // namespace
}  // namespace glyd
