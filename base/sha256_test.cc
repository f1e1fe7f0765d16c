#include "base/sha256.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace glyd {
namespace {

std::vector<uint8_t> Bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

Digest OpenSsl(const uint8_t* data, size_t bytes) {
  Sha256 h(Sha256::Backend::kOpenSsl);
  h.Update(data, bytes);
  return h.Finish();
}

TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(Sha256Hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  for (const Sha256::Backend backend : {Sha256::Backend::kBest, Sha256::Backend::kOpenSsl}) {
    Sha256 h(backend);
    h.Update("a", 1);
    h.Update("bc", 2);
    EXPECT_EQ(h.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    h.Update("abc", 3);
    EXPECT_EQ(h.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  }
}

TEST(Sha256Test, EveryShortLengthIsOpenSsls) {
  const std::vector<uint8_t> data = Bytes(303, 1);
  Sha256 h;
  for (size_t from = 0; from < 3; ++from)
    for (size_t n = 0; n <= 300; ++n) {
      h.Update(data.data() + from, n);
      EXPECT_EQ(h.Finish(), OpenSsl(data.data() + from, n)) << n;
    }
}

TEST(Sha256Test, SplitsDoNotMatter) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int n = 0; n < 300; ++n) {
    const std::vector<uint8_t> data = Bytes(random() % 5000, random());
    Sha256 h;
    for (size_t at = 0; at < data.size();) {
      const size_t more = std::min<size_t>(data.size() - at, random() % 200);
      h.Update(data.data() + at, more);
      at += more;
    }
    EXPECT_EQ(h.Finish(), OpenSsl(data.data(), data.size()));
  }
}

// Two messages of any lengths in pieces of any lengths, with either backend on either side.
TEST(Sha256Test, PairsAreTheTwoAlone) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int n = 0; n < 400; ++n) {
    const auto backend = [&] {
      return random() % 8 == 0 ? Sha256::Backend::kOpenSsl : Sha256::Backend::kBest;
    };
    const std::vector<uint8_t> a = Bytes(random() % 3000, random());
    const std::vector<uint8_t> b = Bytes(n % 5 == 0 ? a.size() : random() % 3000, random());
    Sha256 ha(backend()), hb(backend());
    size_t at_a = 0, at_b = 0;
    while (at_a < a.size() || at_b < b.size()) {
      const size_t more_a = std::min<size_t>(a.size() - at_a, random() % 500);
      const size_t more_b = std::min<size_t>(b.size() - at_b, random() % 500);
      Sha256::UpdatePair(ha, a.data() + at_a, more_a, hb, b.data() + at_b, more_b);
      at_a += more_a, at_b += more_b;
    }
    EXPECT_EQ(ha.Finish(), OpenSsl(a.data(), a.size()));
    EXPECT_EQ(hb.Finish(), OpenSsl(b.data(), b.size()));
  }
}

TEST(Sha256Test, PairsOfEveryShortLength) {
  const std::vector<uint8_t> data = Bytes(200, 3);
  for (size_t n = 0; n <= 130; ++n)
    for (size_t m = 0; m <= 130; m += 13) {
      Sha256 a, b;
      Sha256::UpdatePair(a, data.data(), n, b, data.data() + 1, m);
      EXPECT_EQ(a.Finish(), OpenSsl(data.data(), n));
      EXPECT_EQ(b.Finish(), OpenSsl(data.data() + 1, m));
    }
}

TEST(Sha256Test, MovesWithItsState) {
  Sha256 h;
  h.Update("ab", 2);
  Sha256 moved = std::move(h);
  moved.Update("c", 1);
  EXPECT_EQ(moved.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace glyd
