#include "client/cli/bar.h"

#include <gtest/gtest.h>

#include "client/cli/text.h"

namespace glyd::cli {
namespace {

TEST(BarLine, TellsHowFarHowFastAndHowLong) {
  const BarState s = {"pack", "model.layers.3.mlp", 50'000'000, 200'000'000, 10e6};
  EXPECT_EQ(BarLine(s, 120),
            "pack [#####...............]  25% 50.0 MB of 200.0 MB, 10.0 MB/s, 15 s left  "
            "model.layers.3.mlp");
}

TEST(BarLine, KeepsToTheWidth) {
  const BarState s = {"pack", std::string(300, 'x'), 1, 2, 1000};
  for (const size_t width : {1, 3, 4, 10, 40, 79, 80, 200})
    EXPECT_LE(Columns(BarLine(s, width)), width) << width;
}

TEST(BarLine, DoneMayPassTheTotal) {
  EXPECT_EQ(BarLine({"read", "", 30, 20, 0}, 40), "read 100% 30 B of 20 B");
  EXPECT_EQ(BarLine({"read", "", 0, 0, 0}, 40), "read");
}

TEST(BarLine, NamesFromFilesCannotSteerTheTerminal) {
  EXPECT_EQ(BarLine({"read", "a\033[2J\n", 0, 0, 0}, 80), "read  a\\x1b[2J\\n");
}

}  // namespace
}  // namespace glyd::cli
