#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// What a fuzz target does in a build without a fuzzer: its seeds, and a fixed number of changes to
// them, the same at every run.

namespace {

class Random {
 public:
  uint64_t Below(uint64_t n) {
    x_ ^= x_ << 13;
    x_ ^= x_ >> 7;
    x_ ^= x_ << 17;
    return x_ % n;
  }

 private:
  uint64_t x_ = 0x9E3779B97F4A7C15;
};

void Feed(const std::string& input) {
  // A copy of its own size, so that a sanitizer sees a read past its end.
  const std::vector<uint8_t> data(input.begin(), input.end());
  LLVMFuzzerTestOneInput(data.data(), data.size());
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  if (std::filesystem::exists(GLYD_FUZZ_SEEDS)) {
    for (const auto& e : std::filesystem::directory_iterator(GLYD_FUZZ_SEEDS)) {
      std::ifstream in(e.path(), std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

std::string Change(std::string s, const std::vector<std::string>& seeds, Random& random) {
  static const std::string kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "null",
                                        "-0",
                                        "1e0",
                                        "\\u0061",
                                        "18446744073709551616",
                                        std::string(1, '\0'),
                                        "\xff"};
  for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
    const size_t at = random.Below(s.size() + 1);
    switch (random.Below(6)) {
      case 0:
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << random.Below(8)));
        break;
      case 1:
        s.erase(at, random.Below(16));
        break;
      case 2:
        s.insert(at, kPieces[random.Below(std::size(kPieces))]);
        break;
      case 3:
        s.insert(at, s.substr(random.Below(s.size() + 1), random.Below(64)));
        break;
      case 4: {
        const std::string& other = seeds[random.Below(seeds.size())];
        s = s.substr(0, at) + other.substr(random.Below(other.size() + 1));
        break;
      }
      default:
        s.resize(at);
    }
  }
  return s;
}

TEST(FuzzSmokeTest, SeedsAndChangesOfThem) {
  Feed("");
  const std::vector<std::string> seeds = Seeds();
  ASSERT_FALSE(seeds.empty()) << "no seeds in " << GLYD_FUZZ_SEEDS;
  for (const std::string& s : seeds) Feed(s);
  Random random;
  constexpr uint64_t kBytes = 32 << 20;  // all of them together
  uint64_t bytes = 0;
  for (int i = 0; i < GLYD_FUZZ_RUNS && bytes < kBytes; ++i) {
    const std::string input = Change(seeds[random.Below(seeds.size())], seeds, random);
    bytes += input.size();
    Feed(input);
  }
}

}  // namespace
