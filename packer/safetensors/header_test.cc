#include "packer/safetensors/header.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/safetensors/dtype.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<StoredTensor>> Parse(std::string json, uint64_t data_bytes) {
  return ParseHeader(std::move(json), 1000, 1000 + data_bytes, "f");
}

std::string Message(const absl::Status& s) { return std::string(s.message()); }

// The verdicts of tests/data/cases/headers.tsv.
class HeaderCaseTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(HeaderCaseTest, HasItsVerdict) {
  const std::string file = GetParam()[0], verdict = GetParam()[1];
  const auto dir = Dir::Open(testing::HeaderCases());
  ASSERT_TRUE(dir.ok()) << dir.status();
  const auto c = Checkpoint::OpenFile(*dir, file);
  EXPECT_EQ(c.ok(), verdict == "accept") << c.status();
  if (!c.ok()) {
    EXPECT_THAT(Message(c.status()), HasSubstr(file));
    EXPECT_TRUE(absl::IsDataLoss(c.status())) << c.status();
  }
}

// One reader for all that is done with such a file.
TEST_P(HeaderCaseTest, IsTheSameForPackVerifyAndUnpack) {
  const std::string file = absl::StrCat(testing::HeaderCases(), "/", GetParam()[0]);
  const bool good = GetParam()[1] == "accept";
  const testing::TempDir t;
  const std::string save = t / "save", model = t / "model", out = t / "out", back = t / "back";
  testing::WriteSaveOf(file, save);
  testing::WriteSaveOf(file, model);
  std::filesystem::remove(model + "/glyd.json");
  const auto expect = [&](const absl::Status& s) {
    EXPECT_EQ(s.ok(), good) << s;
    if (!good) {
      EXPECT_THAT(Message(s), HasSubstr("model.safetensors"));
    }
  };
  expect(testing::Verify(save));
  expect(testing::Unpack(save, back));
  PackOptions options;
  options.any = true;
  expect(testing::Pack(model, out, options).status());
  if (!good) {
    EXPECT_THAT(testing::ListDir(t.path()), ElementsAre("model", "save"));
    return;
  }
  EXPECT_EQ(testing::TensorsOf(back), testing::TensorsOf(model));
  expect(testing::Verify(out));
  expect(testing::Unpack(out, back, true));
  EXPECT_EQ(testing::TensorsOf(back), testing::TensorsOf(model));
}

INSTANTIATE_TEST_SUITE_P(, HeaderCaseTest,
                         ::testing::ValuesIn(testing::CaseRows("headers.tsv", true)),
                         [](const auto& row) {
                           return row.param[0].substr(0, row.param[0].find('.'));
                         });

TEST(HeaderTest, EveryCaseHasAVerdict) {
  EXPECT_EQ(testing::ListDir(testing::HeaderCases()).size(),
            testing::CaseRows("headers.tsv", true).size());
}

TEST(HeaderTest, PlacesTensorsInTheOrderOfTheirData) {
  const auto t = Parse(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},)"
                       R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
                       10);
  ASSERT_TRUE(t.ok()) << t.status();
  ASSERT_EQ(t->size(), 2u);
  EXPECT_EQ((*t)[0].name, "a");
  EXPECT_EQ((*t)[0].offset, 1000u);
  EXPECT_EQ((*t)[0].bytes, 2u);
  EXPECT_EQ((*t)[1].offset, 1002u);
  EXPECT_EQ((*t)[1].bytes, 8u);
}

TEST(HeaderTest, TellsWhatAFileLooksLike) {
  const auto dir = Dir::Open(testing::HeaderCases());
  EXPECT_THAT(Message(Checkpoint::OpenFile(*dir, "h03_html.safetensors").status()),
              HasSubstr("looks like an HTML page"));
  EXPECT_THAT(Message(Checkpoint::OpenFile(*dir, "h04_lfs.safetensors").status()),
              HasSubstr("looks like a Git LFS pointer"));
}

TEST(HeaderTest, ALengthThatStartsLikeHtmlIsALength) {
  const testing::TempDir t;
  std::string header = R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
  header.append('<' - header.size(), ' ');
  std::string file(8, '\0');
  StoreLe64(file.data(), header.size());
  testing::WriteFile(t / "x.safetensors", file + header + "ab");
  EXPECT_TRUE(Checkpoint::OpenFile(*Dir::Open(t.path()), "x.safetensors").ok());
}

TEST(HeaderTest, CapNamesBothNumbers) {
  const testing::TempDir t;
  std::string file(16, '\0');
  StoreLe64(file.data(), kMaxHeaderBytes + 1);
  testing::WriteFile(t / "x.safetensors", file);
  const auto c = Checkpoint::OpenFile(*Dir::Open(t.path()), "x.safetensors");
  EXPECT_THAT(Message(c.status()), AllOf(HasSubstr("100000001"), HasSubstr("100000000")));
}

TEST(HeaderTest, StrictJson) {
  const std::string a = R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]})";
  EXPECT_TRUE(Parse("{" + a + "}", 2).ok());
  EXPECT_TRUE(Parse("{ " + a + " } \n\t\r", 2).ok());
  for (const std::string& bad : {
           "{" + a + ",}",
           "{," + a + "}",
           "{" + a,
           "{" + a + "}}",
           "{" + a + "}x",
           "{" + a + "} {}",
           "[{" + a + "}]",
           " {" + a + "}",
           "{" + a + "} //",
           "{" + a + " " + a + "}",
           std::string(R"({'a':{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})"),
           std::string(R"({a:{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[01],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[+1],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1.0],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1,],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1 1],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[true],"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":{},"data_offsets":[0,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2,2]}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2],"x":1}})"),
           std::string(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}"b":1})"),
           std::string(R"({"a":{"dtype":"\ud800","shape":[1],"data_offsets":[0,2]}})"),
           std::string("{\"a\n\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}"),
           std::string(R"({"a":[{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}]})"),
           std::string(R"({"__metadata__":{"a":1}})"),
           std::string(R"({"__metadata__":[]})"),
           std::string(R"({"__metadata__":{"a":"b","\u0061":"c"}})"),
           std::string(R"({"__metadata__":null,"__metadata__":null})"),
           std::string(200000, '['),
           "{\"a\":" + std::string(200000, '['),
           std::string(),
       }) {
    EXPECT_FALSE(Parse(bad, 2).ok()) << bad.substr(0, 200);
  }
}

TEST(DtypeTest, BytesOfAllDtypes) {
  EXPECT_EQ(*TensorBytes("C64", {3}), 24u);
  EXPECT_EQ(*TensorBytes("F8_E8M0", {3}), 3u);
  EXPECT_EQ(*TensorBytes("F6_E2M3", {4}), 3u);
  EXPECT_EQ(*TensorBytes("F4", {2}), 1u);
  EXPECT_EQ(*TensorBytes("BOOL", {}), 1u);
  EXPECT_EQ(*TensorBytes("F64", {7, 0, 3}), 0u);
  EXPECT_FALSE(TensorBytes("F6_E2M3", {3}).ok());
  EXPECT_FALSE(TensorBytes("F16 ", {3}).ok());
  EXPECT_FALSE(TensorBytes("U8", {uint64_t{1} << 63, 2}).ok());
  EXPECT_FALSE(TensorBytes("U8", {0, uint64_t{1} << 63, 2}).ok());
  EXPECT_LT(FindDtype("I32")->order, FindDtype("BF16")->order);
  EXPECT_LT(FindDtype("BF16")->order, FindDtype("U8")->order);
}

}  // namespace
}  // namespace glyd
