#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// The rows of tests/data/cases/saves.tsv: case, the save it damages, verdict, what the message
// names.
class SaveCaseTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(SaveCaseTest, HasItsVerdict) {
  const std::string name = GetParam()[0];
  const absl::Status s = testing::Verify(absl::StrCat(testing::SaveCases(), "/", name));
  EXPECT_EQ(s.ok(), GetParam()[2] == "ok") << s;
  if (!s.ok()) {
    EXPECT_THAT(std::string(s.message()), HasSubstr(GetParam()[3]));
  }
}

INSTANTIATE_TEST_SUITE_P(, SaveCaseTest, ::testing::ValuesIn(testing::CaseRows("saves.tsv", true)),
                         [](const auto& row) { return row.param[0]; });

}  // namespace
}  // namespace glyd
