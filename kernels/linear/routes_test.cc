#include "kernels/linear/routes.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/format/pack.h"

namespace glyd {
namespace {

RouteLimits Limits(const std::map<std::string, std::string>& variables) {
  return RouteLimits::From([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

int64_t Number(absl::string_view text) {
  int64_t value = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text, &value)) << text;
  return value;
}

// tests/data/cases/routes.tsv: the answers of glyd_gpu 0.25.0.
TEST(Routes, EveryRowOfTheTable) {
  const char* source = std::getenv("GLYD_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream file(std::string(source) + "/tests/data/cases/routes.tsv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  int rows = 0;
  while (std::getline(file, line)) {
    SCOPED_TRACE(line);
    ++rows;
    const std::vector<std::string> f = absl::StrSplit(line, '\t');
    ASSERT_EQ(f.size(), 5u);
    std::map<std::string, std::string> variables;
    if (f[0] != "-") {
      const std::vector<std::string> v = absl::StrSplit(f[0], '=');
      variables[v.at(0)] = v.at(1);
    }
    const RouteLimits limits = Limits(variables);
    const Layout layout = *ParseLayout(f[2]);
    const int64_t gpu = Number(f[1]), k = Number(f[3]);
    const std::vector<std::string> runs = absl::StrSplit(f[4], ' ');
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::vector<std::string> run = absl::StrSplit(runs[i], ':');
      const int64_t first = Number(run.at(0)), route = Number(run.at(1));
      const int64_t last = i + 1 < runs.size()
                               ? Number(runs[i + 1].substr(0, runs[i + 1].find(':'))) - 1
                               : INT64_MAX;
      for (const int64_t m : {first, first + (last - first) / 2, last}) {
        const RouteChoice choice = ChooseRoute(layout, gpu, k, m, limits);
        EXPECT_EQ(static_cast<int>(choice.route), route) << "M " << m;
        EXPECT_EQ(choice.last, last) << "M " << m;
      }
    }
  }
  EXPECT_EQ(rows, 152);
}

// A walk over M finds the same ends as the query gives, whatever the limits.
TEST(Routes, LastIsWhereAWalkSeesAChange) {
  const RouteLimits kinds[] = {{},
                               {100, 200},
                               {5, 40},
                               {17, 1024, 100},
                               {17, 1024, 3, 50},
                               {-4, 90, -7, 0},
                               {90, 20, 200, 70},
                               {17, INT64_MAX}};
  for (const RouteLimits& limits : kinds)
    for (const int64_t gpu : {80, 86, 90, 120, 1089, 2086})
      for (const int64_t k : {64, 80})
        for (const Layout layout : {Layout::kMma, Layout::kMma12})
          for (int64_t m = 0; m < 2500; ++m) {
            const RouteChoice a = ChooseRoute(layout, gpu, k, m, limits);
            const RouteChoice b = ChooseRoute(layout, gpu, k, m + 1, limits);
            ASSERT_EQ(a.last == m, a.route != b.route) << gpu << " K " << k << " M " << m;
            ASSERT_TRUE(a.route != b.route || a.last == b.last) << gpu << " K " << k << " M " << m;
          }
}

TEST(Routes, VariablesThatAreNoNumbersCountAsUnset) {
  for (const char* text :
       {"", "abc", "12x", "0x10", "1.5", "9223372036854775808", "-9223372036854775809", "33 ", " ",
        "+", "-", "--3", "1 2", "33\n", "1e3"})
    EXPECT_EQ(Limits({{"GLYD_MID_MIN", text}}).mid_min, 17) << '"' << text << '"';
  for (const char* text : {" 33", "\t\n 33", "+33", "0033"})
    EXPECT_EQ(Limits({{"GLYD_MID_MIN", text}}).mid_min, 33) << '"' << text << '"';
  EXPECT_EQ(Limits({{"GLYD_MID_MIN", "-5"}}).mid_min, -5);
  EXPECT_EQ(Limits({{"GLYD_WG_MAX", "9223372036854775807"}}).wg_max, INT64_MAX);
  EXPECT_EQ(Limits({{"GLYD_WG_MIN", "-9223372036854775808"}}).wg_min, INT64_MIN);
}

TEST(Routes, GpuCodes) {
  EXPECT_EQ(GpuCode(8, 9, "NVIDIA GeForce RTX 4090"), 1089);
  EXPECT_EQ(GpuCode(8, 9, "NVIDIA L4"), 89);
  EXPECT_EQ(GpuCode(8, 6, "NVIDIA A10"), 2086);
  EXPECT_EQ(GpuCode(8, 6, "A10-24Q"), 2086);
  EXPECT_EQ(GpuCode(8, 6, "NVIDIA A10G"), 86);
  EXPECT_EQ(GpuCode(8, 6, "NVIDIA_A10"), 86);
  EXPECT_EQ(GpuCode(8, 6, "A10G A10"), 2086);
  EXPECT_EQ(GpuCode(8, 6, "\u00e9A10"), 2086);
  EXPECT_EQ(GpuCode(8, 0, "NVIDIA A100-SXM4-40GB"), 80);
  EXPECT_EQ(GpuCode(9, 0, "NVIDIA H200"), 90);
  EXPECT_EQ(GpuCode(10, 3, "NVIDIA B300"), 103);
  EXPECT_EQ(GpuCode(12, 0, "NVIDIA GeForce RTX 5090"), 1120);
  EXPECT_TRUE(HasKernels(1120));
  EXPECT_FALSE(HasKernels(75));
  EXPECT_FALSE(HasKernels(1075));
}

}  // namespace
}  // namespace glyd
