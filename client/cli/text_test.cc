#include "client/cli/text.h"

#include <gtest/gtest.h>

namespace glyd::cli {
namespace {

TEST(Cut, CountsCharactersAndSplitsNone) {
  EXPECT_EQ(Cut("abcdef", 6), "abcdef");
  EXPECT_EQ(Cut("abcdefg", 6), "abc...");
  EXPECT_EQ(Cut("äöüäöüä", 6), "äöü...");
  EXPECT_EQ(Cut("abcd", 2), "ab");
  EXPECT_EQ(Cut("", 0), "");
}

TEST(TextTable, AlignsColumnsAndLeavesNoSpaceBehind) {
  TextTable t({{"NAME"}, {"SIZE", TextTable::kRight}, {"STATE"}});
  t.Add({"a", "1.0 kB", "READY"});
  t.Add({"längeres", "12 B", ""});
  EXPECT_EQ(t.Text(),
            "NAME        SIZE  STATE\n"
            "a         1.0 kB  READY\n"
            "längeres    12 B\n");
}

TEST(HumanSeconds, PicksItsUnit) {
  EXPECT_EQ(HumanSeconds(0.00031), "310 us");
  EXPECT_EQ(HumanSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(HumanSeconds(0.31), "0.31 s");
  EXPECT_EQ(HumanSeconds(12), "12 s");
  EXPECT_EQ(WholeSeconds(3), "3 s");
  EXPECT_EQ(WholeSeconds(200), "3 min 20 s");
  EXPECT_EQ(WholeSeconds(7500), "2 h 5 min");
  EXPECT_EQ(WholeSeconds(4 * 86400 + 3 * 3600), "4 d 3 h");
  EXPECT_EQ(WholeSeconds(-1), "0 s");
}

TEST(HumanAge, OfATimeThatHasNotCome) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_EQ(HumanAge(absl::InfinitePast(), now), "-");
  EXPECT_EQ(HumanAge(now - absl::Seconds(90), now), "1 min 30 s");
}

}  // namespace
}  // namespace glyd::cli
