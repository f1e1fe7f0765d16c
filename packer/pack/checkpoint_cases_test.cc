#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using testing::CaseRows;
using testing::CheckpointCases;
using testing::ReadFile;
using testing::TempDir;

// One row a checkpoint and way to pack it: name, layout, and the digests of its files.
struct Case {
  std::string checkpoint, how;
  std::vector<std::pair<std::string, std::string>> files;
};

// The rows of checkpoints.tsv for the generated checkpoints; the real model's are tests/demo's.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::vector<std::string>& row : CaseRows("checkpoints.tsv", false)) {
    if (row[0] == "smollm2") continue;
    if (cases.empty() || cases.back().checkpoint != row[0] || cases.back().how != row[1])
      cases.push_back({row[0], row[1], {}});
    cases.back().files.emplace_back(row[2], row[3]);
  }
  return cases;
}

class CheckpointCaseTest : public ::testing::TestWithParam<Case> {
 protected:
  // Packed with `model` as MODEL, as the digests want it: the name alone.
  void Pack(const TempDir& t) {
    const Case& c = GetParam();
    PackOptions options;
    options.layout = *ParseLayout(c.how.substr(0, c.how.find(' ')));
    options.merge = !absl::StrContains(c.how, "--no-merge");
    options.repo = c.checkpoint;
    const auto packed =
        testing::Pack(absl::StrCat(CheckpointCases(), "/", c.checkpoint), t / "out", options);
    ASSERT_TRUE(packed.ok()) << packed.status();
  }
};

TEST_P(CheckpointCaseTest, ByteForByte) {
  const TempDir t;
  ASSERT_NO_FATAL_FAILURE(Pack(t));
  for (const auto& [file, want] : GetParam().files) {
    const std::string got = ReadFile(t / absl::StrCat("out/", file));
    EXPECT_EQ(Sha256Hex(got.data(), got.size()), want) << file;
    if (file != "glyd.json") continue;
    const std::string expected = ReadFile(absl::StrCat(
        GLYD_CASES_DIR, "/expected/", GetParam().checkpoint, ".",
        absl::StrReplaceAll(GetParam().how, {{" --no-merge", ".nomerge"}}), ".glyd.json"));
    EXPECT_EQ(got, expected);
  }
}

TEST_P(CheckpointCaseTest, VerifiesAndUnpacksToTheSource) {
  const TempDir t;
  ASSERT_NO_FATAL_FAILURE(Pack(t));
  EXPECT_TRUE(testing::Verify(t / "out").ok()) << testing::Verify(t / "out");
  const absl::Status unpacked = testing::Unpack(t / "out", t / "back");
  ASSERT_TRUE(unpacked.ok()) << unpacked;
  const std::string source = absl::StrCat(CheckpointCases(), "/", GetParam().checkpoint, "/");
  for (const char* file : {"config.json", "generation_config.json", "tokenizer_config.json"})
    EXPECT_EQ(ReadFile(t / absl::StrCat("back/", file)), ReadFile(source + file)) << file;
  // The sharded one comes back as one file.
  if (GetParam().checkpoint == "qwen3-shards") return;
  const std::string back = ReadFile(t / "back/model.safetensors");
  EXPECT_TRUE(back == ReadFile(source + "model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(, CheckpointCaseTest, ::testing::ValuesIn(Cases()), [](const auto& c) {
  return absl::StrReplaceAll(absl::StrCat(c.param.checkpoint, "_", c.param.how),
                             {{"-", "_"}, {" ", "_"}});
});

}  // namespace
}  // namespace glyd
