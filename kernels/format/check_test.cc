#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kRows = 128, kCols = 48, kSteps = 6;

EncodedPack Good(Layout layout) {
  return *Encode(layout, kRows, kCols, testing::Weights(kRows * kCols, 0.2, 3).data());
}

// One rule broken, and what the message must name.
struct Damage {
  std::function<void(EncodedPack&)> harm;
  std::vector<std::string> named;
};

void ExpectRefused(Layout layout, const std::vector<Damage>& cases) {
  for (const Damage& damage : cases) {
    EncodedPack pack = Good(layout);
    damage.harm(pack);
    const absl::Status s = CheckPack(pack.view());
    EXPECT_EQ(s.code(), absl::StatusCode::kDataLoss) << absl::StrCat("case ", damage.named[0]);
    for (const std::string& word : damage.named)
      EXPECT_THAT(std::string(s.message()), HasSubstr(word));
  }
}

void SetException(EncodedPack& p, size_t k, uint32_t v) {
  std::memcpy(p.side.data() + 4 * k, &v, 4);
}

const std::vector<Damage>& ShapeDamage() {
  static const auto* cases = new std::vector<Damage>{
      {[](EncodedPack& p) { p.meta.rows = 63; }, {"shape [63, 48]"}},
      {[](EncodedPack& p) { p.meta.rows = 0; }, {"shape [0, 48]"}},
      {[](EncodedPack& p) { p.meta.cols = 47; }, {"shape [128, 47]"}},
      {[](EncodedPack& p) { p.meta.rows = uint64_t{1} << 62, p.meta.cols = 1024; }, {"shape ["}},
      {[](EncodedPack& p) { p.meta.rows = 192; }, {"glyd_data", "[192, 48]"}},
      {[](EncodedPack& p) { p.data.pop_back(); }, {"glyd_data"}},
      {[](EncodedPack& p) { p.data.clear(); }, {"glyd_data has 0 bytes"}},
      {[](EncodedPack& p) { p.meta.layout = static_cast<Layout>(3); }, {"layout 3"}},
  };
  return *cases;
}

TEST(CheckPackTest, Good) {
  EXPECT_TRUE(CheckPack(Good(Layout::kMma).view()).ok());
  EXPECT_TRUE(CheckPack(Good(Layout::kMma12).view()).ok());
}

TEST(CheckPackTest, ShapesAndData) {
  ExpectRefused(Layout::kMma, ShapeDamage());
  ExpectRefused(Layout::kMma12, ShapeDamage());
}

TEST(CheckPackTest, Mma12) {
  const int32_t exceptions = Good(Layout::kMma12).base.back();
  ASSERT_GT(exceptions, 100);
  const std::string count = absl::StrCat(exceptions);
  ExpectRefused(
      Layout::kMma12,
      {
          {[](EncodedPack& p) { p.meta.hb = 121; }, {"hb is 121", "120"}},
          {[](EncodedPack& p) { p.meta.hb = ~0u; }, {"hb is 4294967295"}},
          {[](EncodedPack& p) { p.base.pop_back(); }, {"glyd_exc_base has 6 elements", "7"}},
          {[](EncodedPack& p) { p.base.clear(); }, {"glyd_exc_base has 0 elements"}},
          {[](EncodedPack& p) { p.base[0] = -4; }, {"glyd_exc_base starts at -4"}},
          {[](EncodedPack& p) { p.base[0] = 1; }, {"glyd_exc_base starts at 1, 0"}},
          {[](EncodedPack& p) { p.base[3] = p.base[2] - 1; }, {"glyd_exc_base falls at step 2"}},
          {[](EncodedPack& p) { p.base[3] = INT32_MIN; }, {"to -2147483648"}},
          {[](EncodedPack& p) { p.base[6] = 1 << 30; },
           {"glyd_exc_base ends at 1073741824", "glyd_exc has"}},
          {[](EncodedPack& p) { p.side.resize(p.side.size() - 1); }, {"glyd_exc has", "multiple"}},
          {[](EncodedPack& p) { p.side.resize(p.side.size() - 4); }, {"glyd_exc has"}},
          {[](EncodedPack& p) { p.side.resize(16); },
           {"glyd_exc has 4 elements", "ends at " + count}},
          {[](EncodedPack& p) { p.side.clear(); }, {"glyd_exc has 0 elements"}},
          {[](EncodedPack& p) { SetException(p, 5, 1024); },
           {"glyd_exc: element 5 has place 1024", "1023"}},
          {[](EncodedPack& p) { SetException(p, 9, 0x8001); }, {"element 9 has place 32769"}},
          {[](EncodedPack& p) { SetException(p, 9, 0x01000001); }, {"element 9 is 16777217"}},
          {[](EncodedPack& p) { SetException(p, 9, 0x80000001); }, {"element 9 is"}},
      });
}

uint32_t Exception(const EncodedPack& p, size_t k) { return LoadLe32(&p.side[4 * k]); }

// What decodes to the same weights and is nothing that an encoder writes.
TEST(CheckPackTest, Mma12Canonical) {
  ExpectRefused(
      Layout::kMma12,
      {
          {[](EncodedPack& p) { p.side.resize(p.side.size() + 16); }, {"glyd_exc has", "1 to 4"}},
          {[](EncodedPack& p) { p.side.back() = 1; }, {"glyd_exc: byte ", "is 1, zero expected"}},
          {[](EncodedPack& p) { SetException(p, 5, Exception(p, 4)); },
           {"glyd_exc: element 5", "not in order"}},
          {[](EncodedPack& p) {
             const uint32_t a = Exception(p, 4), b = Exception(p, 5);
             SetException(p, 4, b);
             SetException(p, 5, a);
           },
           {"glyd_exc: element 5", "not in order"}},
          {[](EncodedPack& p) { SetException(p, 5, Exception(p, 5) & 0xFFFF); },
           {"glyd_exc: element 5 makes a high byte", "no exception"}},
          {[](EncodedPack& p) {
             SetException(p, 5, (Exception(p, 5) & 0xFFFF) | (p.meta.hb ^ (p.meta.hb + 7)) << 16);
           },
           {"no exception"}},
          {[](EncodedPack& p) { SetException(p, 5, Exception(p, 5) | 1 << 23); },
           {"element 5 is", "bits past"}},
          {[](EncodedPack& p) {
             const uint32_t q = Exception(p, 5) & 0xFFFF, i = q % 32;
             const uint32_t bit = i % 8 < 4 ? 8 * (i % 8) : 8 * ((i % 8 - 4 + 3) % 4) + 4;
             p.data[16 * (q / 32) + 4 * (i / 8) + bit / 8] |= 1 << bit % 8;
           },
           {"glyd_data: the code of place", "in step 0", "is 1, 0 expected"}},
      });
  // Without `data` its codes alone are not looked at.
  EncodedPack pack = Good(Layout::kMma12);
  PackView view = pack.view();
  view.data = nullptr;
  EXPECT_TRUE(CheckPack(view).ok());
  SetException(pack, 5, Exception(pack, 4));
  EXPECT_FALSE(CheckPack(view).ok());
}

TEST(CheckPackTest, MmaCanonical) {
  ExpectRefused(Layout::kMma,
                {
                    {[](EncodedPack& p) { p.side[0] = 1; }, {"glyd_blocks: byte 0 is 1"}},
                    {[](EncodedPack& p) { p.side[127] = 2; }, {"glyd_blocks: byte 127 is 2"}},
                    {[](EncodedPack& p) { p.side.back() = 3; }, {"glyd_blocks: byte ", "is 3"}},
                    {[](EncodedPack& p) { p.side[p.base.back()] = 4; }, {"is 4, zero expected"}},
                    {[](EncodedPack& p) { p.meta.tiers[2] = p.meta.tiers[1]; }, {"twice"}},
                });
  // Unused bits of the last group of second digits and of the last byte of third ones, and an
  // exponent of the tiers among the third escapes: in whichever step has some.
  const EncodedPack good = Good(Layout::kMma);
  int first = 0, second = 0, third = 0;
  for (uint64_t s = 0; s < kSteps; ++s) {
    const uint8_t* const block = &good.side[good.base[s]];
    const uint64_t size = good.base[s + 1] - good.base[s];
    uint64_t t1 = 0, t2 = 0;
    for (int k = 0; k < kStepWeights; ++k)
      t1 += (good.data[s * kMmaStepBytes + k / 4] >> 2 * (k % 4) & 3) == 3;
    const auto d2 = [&](uint64_t k) {
      return block[size - 4 * (k / 16 + 1) + k % 16 / 4] >> 2 * (k % 4) & 3;
    };
    for (uint64_t k = 0; k < t1; ++k) t2 += d2(k) == 3;
    const uint64_t groups = (t1 + 15) / 16 * 4, bytes = (t2 + 3) / 4;
    const auto refused = [&](uint64_t at, uint8_t bits, const char* says) {
      EncodedPack bad = good;
      bad.side[bad.base[s] + at] = static_cast<uint8_t>(bad.side[bad.base[s] + at] | bits);
      EXPECT_THAT(std::string(CheckPack(bad.view()).message()), HasSubstr(says)) << s;
    };
    if (t1 % 16 != 0) {
      refused(size - groups + 3, 0x40, "first escapes");
      ++first;
    }
    if (t2 % 4 != 0) {
      refused(bytes - 1, 0x40, "second escapes");
      ++second;
    }
    if (bytes + groups < size) {
      EncodedPack bad = good;
      bad.side[bad.base[s] + bytes] = bad.meta.tiers[0] & 0xFF;
      EXPECT_THAT(std::string(CheckPack(bad.view()).message()), HasSubstr("third escape"));
      ++third;
    }
  }
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_GT(third, 0);
}

TEST(CheckPackTest, Mma) {
  ExpectRefused(
      Layout::kMma,
      {
          {[](EncodedPack& p) { p.meta.tiers[1] &= 0x00FFFFFF; }, {"tiers: word 1 has 0"}},
          {[](EncodedPack& p) { p.base.push_back(0); }, {"glyd_block_base has 8 elements", "7"}},
          {[](EncodedPack& p) { p.base[0] = 0; }, {"glyd_block_base starts at 0, 128"}},
          {[](EncodedPack& p) { p.base[1] = -1; },
           {"glyd_block_base falls at step 0 from 128 to -1"}},
          {[](EncodedPack& p) { p.base[6] = INT32_MAX; },
           {"glyd_blocks has", "ends at 2147483647"}},
          {[](EncodedPack& p) { p.side.resize(p.side.size() - 200); }, {"glyd_blocks has"}},
          {[](EncodedPack& p) { p.side.push_back(0); }, {"glyd_blocks has"}},
          {[](EncodedPack& p) { p.side.clear(); }, {"glyd_blocks has 0 bytes"}},
          // A block one byte short, its neighbour one long: both are wrong, the first is named.
          {[](EncodedPack& p) { --p.base[3]; }, {"glyd_blocks: the block of step 2"}},
          {[](EncodedPack& p) { p.base[3] = p.base[2]; },
           {"glyd_blocks: the block of step 2 has 0 bytes"}},
          {[](EncodedPack& p) { p.base[3] = p.base[4]; }, {"glyd_blocks: the block of step 2"}},
          // All digits escapes: far more than the block holds.
          {[](EncodedPack& p) { std::fill_n(p.data.begin() + 2 * kMmaStepBytes, 256, 0xFF); },
           {"glyd_blocks: the block of step 2", "its 1024, "}},
          {[](EncodedPack& p) { std::fill_n(p.data.begin(), 256, 0); }, {"block of step 0"}},
          {[](EncodedPack& p) { std::fill_n(p.side.begin() + p.base[1] - 60, 60, 0xFF); },
           {"glyd_blocks: the block of step 0"}},
      });
}

TEST(CheckPackTest, HugeClaimsReadNothing) {
  const int32_t base[2] = {128, INT32_MAX};
  PackView v = {.meta = {.layout = Layout::kMma, .rows = 64, .cols = 16}};
  v.meta.tiers = {0xFF020100, 0xFF050403, 0xFF080706};
  v.data_bytes = kMmaStepBytes;
  v.base = base, v.base_count = 2;
  v.side_bytes = uint64_t{INT32_MAX} + 256;
  EXPECT_THAT(std::string(CheckPack(v).message()),
              AllOf(HasSubstr("glyd_blocks"), HasSubstr("2147483903")));
  v.side_bytes = UINT64_MAX;
  EXPECT_THAT(std::string(CheckPack(v).message()), HasSubstr("18446744073709551615"));
}

// Random damage: refused or decoded, and never a read outside (which the sanitizers see: buffers
// are exact).
TEST(CheckPackTest, RandomDamage) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  testing::Random random(seed);
  std::vector<uint16_t> out(kRows * kCols);
  int accepted = 0;
  for (int n = 0; n < 4000; ++n) {
    EncodedPack pack = Good(n % 2 ? Layout::kMma : Layout::kMma12);
    for (uint64_t harm = 1 + random.Below(3); harm > 0; --harm) {
      switch (random.Below(6)) {
        case 0:
          pack.data[random.Below(pack.data.size())] ^= 1 << random.Below(8);
          break;
        case 1:
          pack.side[random.Below(pack.side.size())] ^= 1 << random.Below(8);
          break;
        case 2:
          pack.base[random.Below(pack.base.size())] ^= 1 << random.Below(32);
          break;
        case 3:
          pack.base[random.Below(pack.base.size())] += static_cast<int32_t>(random.Below(9)) - 4;
          break;
        case 4:
          pack.side.resize(std::max<size_t>(1, pack.side.size() - random.Below(20)));
          break;
        case 5:
          pack.meta.hb = static_cast<uint32_t>(random.Below(130));
          break;
      }
    }
    pack.side.shrink_to_fit();
    if (!CheckPack(pack.view()).ok()) continue;
    ++accepted;
    DecodeRows(pack.view(), 0, kRows, out.data());
    reference::DecodeRows(pack.view(), 0, kRows, out.data());
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace glyd
