#include "packer/safetensors/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SafetensorsBytes;
using testing::TempDir;
using testing::WriteFile;

constexpr char kOne[] = "model-00001-of-00003.safetensors";
constexpr char kTwo[] = "model-00002-of-00003.safetensors";
constexpr char kThree[] = "model-00003-of-00003.safetensors";

// Three shards with a tensor each, "a" to "c", and their index.
class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / kOne, SafetensorsBytes({{"a", "BF16", {2}}}));
    WriteFile(dir_ / kTwo, SafetensorsBytes({{"b", "BF16", {3}}}));
    WriteFile(dir_ / kThree, SafetensorsBytes({{"c", "F32", {1}}}));
    Index({{"a", kOne}, {"b", kTwo}, {"c", kThree}});
  }

  void Index(const std::vector<std::pair<std::string, std::string>>& map) {
    std::string json = R"({"metadata":{"total_size":1,"x":[1,{"y":null}]},"weight_map":{)";
    for (const auto& [tensor, file] : map)
      json += (json.back() == '{' ? "\"" : ",\"") + tensor + "\":\"" + file + "\"";
    WriteFile(dir_ / kIndexFile, json + "}}");
  }

  absl::StatusOr<Checkpoint> Open() { return Checkpoint::Open(*Dir::Open(dir_.path())); }
  std::string Refusal() {
    const auto c = Open();
    EXPECT_FALSE(c.ok());
    return std::string(c.status().message());
  }

  TempDir dir_;
};

TEST_F(ShardsTest, Opens) {
  const auto c = Open();
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->tensors().size(), 3u);
  EXPECT_EQ(c->Find("b")->bytes, 6u);
  EXPECT_EQ(c->files()[c->Find("b")->file].name, kTwo);
  EXPECT_EQ(c->Find("d"), nullptr);
  EXPECT_TRUE(c->notes().empty());
  EXPECT_TRUE(c->CheckUnchanged().ok());
}

TEST_F(ShardsTest, MissingShards) {
  std::filesystem::remove(dir_ / kOne);
  std::filesystem::remove(dir_ / kThree);
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr(kOne), HasSubstr(kThree), Not(HasSubstr(kTwo)), HasSubstr("2 of 3")));
  EXPECT_TRUE(absl::IsNotFound(Open().status()));
}

TEST_F(ShardsTest, StaleIndex) {
  Index({{"a", kOne}, {"old", kTwo}, {"c", kThree}});
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("not in that shard: \"old\""), HasSubstr("not named there: \"b\"")));
}

TEST_F(ShardsTest, IndexNamesTheWrongShard) {
  Index({{"a", kTwo}, {"b", kOne}, {"c", kThree}});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"a\" in"), HasSubstr("\"b\" in")));
}

TEST_F(ShardsTest, Twice) {
  WriteFile(dir_ / kTwo, SafetensorsBytes({{"a", "BF16", {2}}, {"b", "BF16", {3}}}));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"a\""), HasSubstr(kOne), HasSubstr(kTwo)));
}

TEST_F(ShardsTest, TheIndexRules) {
  WriteFile(dir_ / kSingleFile, "not read at all");
  const auto c = Open();
  ASSERT_TRUE(c.ok()) << c.status();
  ASSERT_EQ(c->notes().size(), 1u);
  EXPECT_THAT(c->notes()[0], HasSubstr("model.safetensors: ignored"));
}

TEST_F(ShardsTest, EscapeByName) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", ""}) {
    Index({{"a", name}, {"b", kTwo}, {"c", kThree}});
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("not a plain file name"), HasSubstr(name)));
  }
}

TEST_F(ShardsTest, EscapeByLink) {
  const TempDir outside;
  std::filesystem::rename(dir_ / kOne, outside / "x");
  std::filesystem::create_symlink(outside / "x", dir_ / kOne);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kOne), HasSubstr("leaves the allowed root")));
}

TEST_F(ShardsTest, NotAFile) {
  std::filesystem::remove(dir_ / kOne);
  std::filesystem::create_directory(dir_ / kOne);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kOne), HasSubstr("not a regular file")));
  std::filesystem::remove(dir_ / kOne);
  ASSERT_EQ(::mkfifo((dir_ / kOne).c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kOne), HasSubstr("not a regular file")));
  std::filesystem::remove(dir_ / kOne);
  std::filesystem::create_symlink("nowhere", dir_ / kOne);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kOne), HasSubstr("not there")));
}

TEST_F(ShardsTest, IndexThatIsNone) {
  for (const char* bad : {"", "{}", "[]", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
                          R"({"weight_map":{"a":"x","a":"x"}})", R"({"weight_map":{"a":"x"}} x)"}) {
    WriteFile(dir_ / kIndexFile, bad);
    EXPECT_THAT(Refusal(), HasSubstr(kIndexFile)) << bad;
  }
}

TEST_F(ShardsTest, GrowingFileIsNoticed) {
  const auto c = Open();
  ASSERT_TRUE(c.ok());
  const std::string old = testing::ReadFile(dir_ / kTwo);
  WriteFile(dir_ / kTwo, old + "x");
  const absl::Status s = c->CheckUnchanged();
  EXPECT_THAT(std::string(s.message()), AllOf(HasSubstr(kTwo), HasSubstr("size changed")));
  EXPECT_TRUE(absl::IsFailedPrecondition(s));
}

TEST(CheckpointTest, NothingThere) {
  const TempDir t;
  WriteFile(t / "adapter.safetensors", "");
  const auto c = Checkpoint::Open(*Dir::Open(t.path()));
  EXPECT_THAT(std::string(c.status().message()),
              AllOf(HasSubstr("neither model.safetensors nor"), HasSubstr("adapter.safetensors")));
}

}  // namespace
}  // namespace glyd
