#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "gtest/gtest.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"

// The packs that docs/format.md, "Known digests", pins: what glyd 0.25.0 writes.

namespace glyd {
namespace {

struct Known {
  const char* name;
  uint64_t rows, cols;
  std::vector<uint16_t> (*make)();
  uint32_t hb;
  uint64_t exceptions;
  const char* mma12_sha256;
  std::array<uint32_t, 3> tiers;
  uint64_t blocks_bytes;
  const char* mma_sha256;
};

std::vector<uint16_t> EveryPatternBut(uint16_t keep, uint16_t set) {
  std::vector<uint16_t> w = testing::EveryPattern();
  for (size_t i = 0; i < w.size(); ++i)
    if (i % 10 != 0) w[i] = (w[i] & keep) | set;
  return w;
}

const Known kKnown[] = {
    {"w1024",
     64,
     16,
     [] { return testing::Weights(1024, 0.0, 1024); },
     57,
     0,
     "27b2b8c015802cdb75e55b50ba1a9c1040fc8d6c7932014ff01e570825f395a7",
     {0xff7a7875, 0xff7c7d77, 0xff797b7e},
     891,
     "dd963352994380456c92fad4bf7a290348470c17f72c7f625f358a632ab87180"},
    {"w4096",
     64,
     64,
     [] { return testing::Weights(4096, 0.5, 4096); },
     57,
     1941,
     "4301f3d82554a2bc384fe7095e8b0b447d8b2641f2767dc7442dd271e45398b0",
     {0xff787c75, 0xff7e7d76, 0xff7b7a79},
     4500,
     "9c6b25ce111ef27d3edd865220f96df5e57da90b4af8c744cbfb1809d2d2c260"},
    {"w6144",
     128,
     48,
     [] { return testing::Weights(6144, 0.02, 6144); },
     57,
     107,
     "8bfd176a4d52e5cb02204828855bc2029693de97ca8baaf461fd6fc6ff2f2cd8",
     {0xff787975, 0xff777c7d, 0xff7a7b7e},
     3894,
     "c86bef73fe49d14c93c61c2c96a4b3c33a6cea7a53ab96590285f31bf0599efb"},
    {"w199680",
     192,
     1040,
     [] { return testing::Weights(199680, 0.001, 199680); },
     57,
     214,
     "0734426ff83a7af220955e402b5f9b4e60d76f0f39015e1289c324cbd92666db",
     {0xff7e757b, 0xff7d7679, 0xff77787a},
     113127,
     "2dab7b690a1536f7a822acc7e3da27fbd01c262274ebc83c822627b58c4ef48d"},
    {"w1048576",
     256,
     4096,
     [] { return testing::Weights(1048576, 0.1, 1048576); },
     57,
     98349,
     "359001272bd4eeb92edc4a14ce524e727b943a97e017c593cfd823eb51d0b695",
     {0xff7a767d, 0xff757b79, 0xff777e78},
     687598,
     "f9ba0dc8ddc5e0f1a7e1f1e914b3f78749ecd02cfc6b142bdd5eba9b6c273a63"},
    {"wild1024",
     64,
     16,
     [] { return testing::Weights(1024, 1.0, 1024); },
     75,
     935,
     "3a1e9bfb33218a4d619672e02d84b412bef679176ff2a7335802545dc95ab361",
     {0xfffb6e99, 0xff0ad897, 0xffa07d3b},
     1816,
     "d1dbad759d2d7cf52049cd85f573ff3ab40414e713117b3534c1f7f43ecb7325"},
    {"every",
     256,
     256,
     testing::EveryPattern,
     0,
     61440,
     "081fe3fd1fc08ec32ec60f972655405fc5aa90aeb55d8e829d78c0b2e2077c40",
     {0xff020100, 0xff050403, 0xff080706},
     95808,
     "ef16a5eb74d7d0e44b78481151dbf858ee02ee7f3bbc599a7414b366aae8809d"},
    {"every_low",
     256,
     256,
     [] { return EveryPatternBut(0x807F, 0); },
     0,
     6144,
     "d917573e7bc816d5ed90312be7f176fbcbd9cb609cae292d497b3587ce4befff",
     {0xff020100, 0xff070605, 0xff0c0b0a},
     10128,
     "17fe6f1de496fd89eb1f5443497d5247ea9ccc3475adf083ccb438a500cd4b2b"},
    {"every_high",
     256,
     256,
     [] { return EveryPatternBut(0xFFFF, 0x7F00); },
     120,
     6144,
     "f5ae65b3a161a39651d47e0d2f77e30febb5eab4a280300c1c9ac66323ebec0d",
     {0xff00feff, 0xff050201, 0xff0a0706},
     10122,
     "00d83ad52ca4ac4fcceb9c9dc5f3b586a25fabec8731aced8251de1d64201f83"},
};

std::string DigestOf(const EncodedPack& pack) {
  Sha256 h;
  h.Update(pack.data.data(), pack.data.size());
  h.Update(pack.side.data(), pack.side.size());
  h.Update(pack.base.data(), pack.base.size() * sizeof pack.base[0]);
  return h.FinishHex();
}

class KnownDigestTest : public ::testing::TestWithParam<Known> {};

TEST_P(KnownDigestTest, Mma12) {
  const Known& known = GetParam();
  const std::vector<uint16_t> w = known.make();
  ASSERT_EQ(w.size(), known.rows * known.cols);
  const auto pack = Encode(Layout::kMma12, known.rows, known.cols, w.data());
  ASSERT_TRUE(pack.ok()) << pack.status();
  EXPECT_EQ(pack->meta.hb, known.hb);
  EXPECT_EQ(static_cast<uint64_t>(pack->base.back()), known.exceptions);
  EXPECT_EQ(DigestOf(*pack), known.mma12_sha256);
  EXPECT_EQ(DigestOf(*reference::Encode(pack->meta, w.data())), known.mma12_sha256);
}

TEST_P(KnownDigestTest, Mma) {
  const Known& known = GetParam();
  const std::vector<uint16_t> w = known.make();
  const auto pack = Encode(Layout::kMma, known.rows, known.cols, w.data());
  ASSERT_TRUE(pack.ok()) << pack.status();
  EXPECT_EQ(pack->meta.tiers, known.tiers);
  EXPECT_EQ(pack->side.size(), known.blocks_bytes);
  EXPECT_EQ(DigestOf(*pack), known.mma_sha256);
  EXPECT_EQ(DigestOf(*reference::Encode(pack->meta, w.data())), known.mma_sha256);
}

INSTANTIATE_TEST_SUITE_P(Matrices, KnownDigestTest, ::testing::ValuesIn(kKnown),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace glyd
