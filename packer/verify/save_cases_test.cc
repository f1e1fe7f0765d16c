#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"
#include "packer/verify/verify.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// The rows of tests/data/cases/saves.tsv: case, the save it damages, verdict, what the message
// names.
class SaveCaseTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(SaveCaseTest, HasItsVerdict) {
  const std::string name = GetParam()[0];
  const std::string path = absl::StrCat(testing::SaveCases(), "/", name);
  const absl::Status s = testing::Verify(path);
  EXPECT_EQ(s.ok(), GetParam()[2] == "ok") << s;
  if (!s.ok()) {
    EXPECT_THAT(std::string(s.message()), HasSubstr(GetParam()[3]));
  }
  // A verdict a tensor, whatever is wrong; what cannot be opened says so of each.
  Progress silent;
  VerifyReport report;
  const absl::Status again = VerifyDir(*Dir::Open(path), {}, silent, &report);
  EXPECT_EQ(again, s);
  EXPECT_FALSE(report.verdicts.empty());
  EXPECT_EQ(s.ok(),
            absl::c_all_of(report.verdicts, [](const TensorVerdict& v) { return v.status.ok(); }));
}

INSTANTIATE_TEST_SUITE_P(, SaveCaseTest, ::testing::ValuesIn(testing::CaseRows("saves.tsv", true)),
                         [](const auto& row) { return row.param[0]; });

}  // namespace
}  // namespace glyd
