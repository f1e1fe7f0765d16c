#include "packer/testing/huge.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/model/save.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/testing/fixtures.h"
#include "packer/verify/verify.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PeakBytes;
using testing::TempDir;
using testing::WriteSparse;

TEST(HugeTest, OneTensorOf3GiB) {
  const TempDir t;
  if (!testing::PackAndVerify3GiB(t, Layout::kMma12)) GTEST_SKIP() << "no room for 12 GiB";
}

constexpr uint64_t kRow = uint64_t{1} << 24, kRowBlock = 2 * 64 * kRow;

// A model of one row block that is 2 GiB of zeros, in t/model.
void WriteLongRows(const TempDir& t) {
  std::filesystem::create_directories(t / "model");
  WriteSparse(t / "model/model.safetensors",
              absl::StrCat(R"({"w.weight":{"dtype":"BF16","shape":[64,)", kRow,
                           R"(],"data_offsets":[0,)", kRowBlock, "]}}"),
              kRowBlock);
}

// Runs `f` in a process that may take 1 GiB more of addresses than it has.
std::string Short(const std::function<absl::Status()>& f) {
  return testing::InChild([&] {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    const rlim_t most = pages * static_cast<uint64_t>(::getpagesize()) + (uint64_t{1} << 30);
    const struct rlimit limit = {most, most};
    ::setrlimit(RLIMIT_AS, &limit);
    return f().ToString();
  });
}

TEST(HugeTest, OneRowBlockOf2GiB) {
  const TempDir t;
  if (std::filesystem::space(t.path()).available < 3 * kRowBlock) GTEST_SKIP() << "no room";
  WriteLongRows(t);
  const auto named = AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("tensor \"w.weight\""),
                           HasSubstr(absl::StrCat(kRowBlock, " bytes needed")));
  PackOptions options;
  options.any = true;
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    options.layout = layout;
    EXPECT_THAT(Short([&] { return testing::Pack(t / "model", t / "out", options).status(); }),
                named);
    EXPECT_THAT(testing::ListDir(t.path()), ElementsAre("model"));
  }
  EXPECT_LT(PeakBytes([&] { return testing::Pack(t / "model", t / "out", options).status(); }),
            testing::kMemoryBound + kRowBlock);
  EXPECT_THAT(Short([&] { return testing::Verify(t / "out"); }), named);
  EXPECT_THAT(Short([&] { return testing::Unpack(t / "out", t / "back"); }), named);
  EXPECT_THAT(testing::ListDir(t.path()), ElementsAre("model", "out"));
  EXPECT_LT(PeakBytes([&] { return testing::Verify(t / "out"); }),
            testing::kMemoryBound + kRowBlock);
}

// Row blocks of 64 MiB on more threads than fit.
TEST(HugeTest, ManyThreadsShareABudget) {
  constexpr uint64_t kCols = uint64_t{1} << 19, kBytes = 2 * 64 * kCols, kTensors = 16;
  const TempDir t;
  std::filesystem::create_directories(t / "model");
  std::string header = "{";
  for (uint64_t i = 0; i < kTensors; ++i)
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"t", i,
                    R"(.weight":{"dtype":"BF16","shape":[64,)", kCols, R"(],"data_offsets":[)",
                    i * kBytes, ",", (i + 1) * kBytes, "]}");
  WriteSparse(t / "model/model.safetensors", header + "}", kTensors * kBytes);
  PackOptions options;
  options.any = options.force = true;
  options.threads = 16;
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    options.layout = layout;
    EXPECT_LT(PeakBytes([&] { return testing::Pack(t / "model", t / "out", options).status(); }),
              testing::kMemoryBound);
  }
  EXPECT_LT(PeakBytes([&] {
              const auto save = Save::Open(*Dir::Open(t / "out"));
              if (!save.ok()) return save.status();
              Progress silent;
              VerifyReport report;
              return VerifySave(*save, {.threads = 16}, silent, &report);
            }),
            testing::kMemoryBound);
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
