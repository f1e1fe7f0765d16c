#include "client/src/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "glyd/v1/model.pb.h"
#include "kernels/device/device.h"
#include "kernels/format/pack.h"

namespace glyd::internal {
namespace {

using ::testing::HasSubstr;

// Two packs, one of each layout, with the tensors that they and a norm come from, as a good daemon
// describes them.
class TableTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRows = 128, kCols = 64;

  TableTest() {
    for (size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = static_cast<uint16_t>(0x3c00 + i % 1500);
    AddPack("a", Layout::kMma);
    AddPack("b", Layout::kMma12);
    v1::Tensor& t = *table_.add_tensors();
    t.set_name("norm.weight");
    t.set_dtype("BF16");
    t.add_shape(kCols);
    t.set_sha256(std::string(32, '\0'));
    Put(std::vector<uint8_t>(kCols * 2, 7).data(), kCols * 2, t.mutable_buffer());
    memory_.resize(AlignUp(memory_.size(), kBufferAlign));
    table_.set_allocation_bytes(memory_.size());
  }

  static uint64_t AlignUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

  void Put(const void* data, uint64_t bytes, v1::Buffer* buffer) {
    memory_.resize(AlignUp(memory_.size(), kBufferAlign));
    buffer->set_offset(memory_.size());
    buffer->set_bytes(bytes);
    const auto* p = static_cast<const uint8_t*>(data);
    memory_.insert(memory_.end(), p, p + bytes);
  }

  void AddPack(const std::string& name, Layout layout) {
    const EncodedPack e = *Encode(layout, kRows, kCols, weights_.data());
    v1::Pack& p = *table_.add_packs();
    p.set_name(name);
    p.set_layout(std::string(LayoutName(layout)));
    p.set_rows(kRows);
    p.set_cols(kCols);
    if (layout == Layout::kMma) {
      for (const uint32_t t : e.meta.tiers) p.add_tiers(t);
    } else {
      p.set_hb(e.meta.hb);
    }
    Put(e.data.data(), e.data.size(), p.mutable_data());
    Put(e.side.data(), e.side.size(), p.mutable_side());
    Put(e.base.data(), e.base.size() * sizeof(int32_t), p.mutable_base());
    for (const char* part : {".q.weight", ".k.weight"}) {
      v1::Member& m = *p.add_members();
      m.set_name(name + part);
      m.add_shape(kRows / 2);
      m.add_shape(kCols);
      m.set_sha256(std::string(32, '\1'));
    }
  }

  absl::StatusOr<Table> Make() { return MakeTable(table_, memory_); }

  std::vector<uint16_t> weights_ = std::vector<uint16_t>(kRows * kCols);
  std::vector<uint8_t> memory_;
  v1::ModelTable table_;
};

TEST_F(TableTest, AGoodTableGivesViewsThatDecode) {
  const auto t = Make();
  ASSERT_TRUE(t.ok()) << t.status();
  ASSERT_EQ(t->packs.size(), 2u);
  ASSERT_EQ(t->tensors.size(), 1u);
  EXPECT_EQ(t->tensors[0].bytes.data(), memory_.data() + table_.tensors(0).buffer().offset());
  EXPECT_EQ(t->places.size(), 5u);
  for (const ModelPack& p : t->packs) {
    EXPECT_EQ(p.members[1].row0, kRows / 2);
    std::vector<uint16_t> out(kRows * kCols);
    ASSERT_TRUE(DecodeRows(p, 0, kRows, absl::MakeSpan(out)).ok());
    EXPECT_EQ(out, weights_) << p.layout;
  }
}

TEST_F(TableTest, RangesOutsideTheMatrixAreRefusedBeforeDecoding) {
  const auto t = Make();
  ASSERT_TRUE(t.ok()) << t.status();
  std::vector<uint16_t> out(kRows * kCols);
  const auto decode = [&](uint64_t row0, uint64_t rows, size_t room) {
    return DecodeRows(t->packs[0], row0, rows, absl::MakeSpan(out.data(), room)).code();
  };
  EXPECT_EQ(decode(0, kRows + 64, (kRows + 64) * kCols), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(192, 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(1, 64, 64 * kCols), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(64, UINT64_MAX - 63, out.size()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(0, 64, 64 * kCols - 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodeRows(ModelPack(), 0, 0, {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TableTest, APackThatDoesNotHoldItsFormatIsRefusedAtItsFirstUse) {
  // A tiered block's base out of order: the table is right, the bytes are not.
  const uint64_t base = table_.packs(0).base().offset();
  memory_[base + 4] = 0xff;
  memory_[base + 7] = 0x7f;
  const auto t = Make();
  ASSERT_TRUE(t.ok()) << t.status();
  std::vector<uint16_t> out(kRows * kCols);
  EXPECT_EQ(DecodeRows(t->packs[0], 0, kRows, absl::MakeSpan(out)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeRows(t->packs[0], 0, kRows, absl::MakeSpan(out)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(DecodeRows(t->packs[1], 0, kRows, absl::MakeSpan(out)).ok());
}

struct Hostile {
  const char* name;
  std::function<void(v1::ModelTable&)> damage;
  const char* says;
};

class HostileTableTest : public TableTest, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileTableTest, IsRefused) {
  GetParam().damage(table_);
  const auto t = Make();
  EXPECT_EQ(t.status().code(), absl::StatusCode::kDataLoss) << t.status();
  EXPECT_THAT(std::string(t.status().message()), HasSubstr(GetParam().says));
}

using T = v1::ModelTable;
INSTANTIATE_TEST_SUITE_P(
    All, HostileTableTest,
    ::testing::Values(
        Hostile{"OffsetPastTheEnd",
                [](T& t) { t.mutable_tensors(0)->mutable_buffer()->set_offset(uint64_t{1} << 40); },
                "tensor \"norm.weight\": data of 128 bytes at 1099511627776"},
        Hostile{"SumOverflows",
                [](T& t) { t.mutable_tensors(0)->mutable_buffer()->set_offset(UINT64_MAX - 255); },
                "data of 128 bytes at 18446744073709551360"},
        Hostile{"SizePastTheEnd",
                [](T& t) { t.mutable_packs(0)->mutable_side()->set_bytes(1 << 30); },
                "pack \"a\": side of 1073741824 bytes"},
        Hostile{"SizeOverflows",
                [](T& t) { t.mutable_packs(0)->mutable_side()->set_bytes(UINT64_MAX); },
                "pack \"a\": side of 18446744073709551615 bytes"},
        Hostile{"Unaligned", [](T& t) { t.mutable_packs(1)->mutable_base()->set_offset(2); },
                "pack \"b\": base at 2, not a multiple of 256"},
        Hostile{"AllocationLargerThanMemory", [](T& t) { t.set_allocation_bytes(UINT64_MAX); },
                "describes 18446744073709551615 bytes"},
        Hostile{"NoTensorBuffer", [](T& t) { t.mutable_tensors(0)->clear_buffer(); },
                "data is missing"},
        Hostile{"NoPackData", [](T& t) { t.mutable_packs(0)->clear_data(); }, "data is missing"},
        Hostile{"NoPackSide", [](T& t) { t.mutable_packs(0)->clear_side(); }, "side is missing"},
        Hostile{"NoPackBase", [](T& t) { t.mutable_packs(0)->clear_base(); }, "base is missing"},
        Hostile{"Dtype", [](T& t) { t.mutable_tensors(0)->set_dtype("BF17"); }, "dtype \"BF17\""},
        Hostile{"ShapeDoesNotFitBytes", [](T& t) { t.mutable_tensors(0)->set_shape(0, 65); },
                "BF16 [65] in 128 bytes"},
        Hostile{"ShapeOverflows",
                [](T& t) {
                  t.mutable_tensors(0)->set_shape(0, uint64_t{1} << 63);
                  t.mutable_tensors(0)->add_shape(2);
                },
                "overflows"},
        Hostile{"ShapeInBitsOverflows",
                [](T& t) { t.mutable_tensors(0)->set_shape(0, uint64_t{1} << 61); },
                "in 128 bytes"},
        Hostile{"TooManyDimensions",
                [](T& t) {
                  for (int i = 0; i < 20; ++i) t.mutable_tensors(0)->add_shape(1);
                },
                "21 dimensions, at most 16"},
        Hostile{"SubByteRemainder",
                [](T& t) {
                  t.mutable_tensors(0)->set_dtype("F4");
                  t.mutable_tensors(0)->set_shape(0, 257);
                },
                "F4 [257] in 128 bytes"},
        Hostile{"Digest", [](T& t) { t.mutable_tensors(0)->set_sha256("short"); },
                "a sha256 of 5 bytes"},
        Hostile{"MemberDigest",
                [](T& t) { t.mutable_packs(0)->mutable_members(0)->clear_sha256(); },
                "a sha256 of 0 bytes"},
        Hostile{"TensorTwice", [](T& t) { *t.add_tensors() = t.tensors(0); }, "is there twice"},
        Hostile{"TensorIsAMember", [](T& t) { t.mutable_tensors(0)->set_name("a.q.weight"); },
                "\"a.q.weight\" is there twice"},
        Hostile{"PackTwice", [](T& t) { t.mutable_packs(1)->set_name("a"); },
                "pack \"a\" is there twice"},
        Hostile{"NamelessTensor", [](T& t) { t.mutable_tensors(0)->clear_name(); },
                "without a name"},
        Hostile{"NamelessPack", [](T& t) { t.mutable_packs(0)->clear_name(); }, "without a name"},
        Hostile{"Layout", [](T& t) { t.mutable_packs(0)->set_layout("mma13"); },
                "layout \"mma13\""},
        Hostile{"Rows", [](T& t) { t.mutable_packs(0)->set_rows(100); }, "100"},
        Hostile{"RowsHuge", [](T& t) { t.mutable_packs(0)->set_rows(uint64_t{1} << 63); },
                "pack \"a\""},
        Hostile{"ColsZero", [](T& t) { t.mutable_packs(0)->set_cols(0); }, "pack \"a\""},
        Hostile{"RowsDoNotFitData", [](T& t) { t.mutable_packs(0)->set_rows(64); },
                "data of 10240 bytes"},
        Hostile{"BaseShort", [](T& t) { t.mutable_packs(0)->mutable_base()->set_bytes(32); },
                "base of 32 bytes, 36 expected"},
        Hostile{"Tiers", [](T& t) { t.mutable_packs(0)->add_tiers(1); }, "4 tiers, 3 expected"},
        Hostile{"MembersTooFewRows",
                [](T& t) { t.mutable_packs(0)->mutable_members()->RemoveLast(); },
                "its members have 64 rows, the matrix 128"},
        Hostile{"MembersTooManyRows",
                [](T& t) { t.mutable_packs(0)->mutable_members(1)->set_shape(0, 128); },
                "ends at row 192 of 128"},
        Hostile{"MemberRowsOdd",
                [](T& t) { t.mutable_packs(0)->mutable_members(0)->set_shape(0, 63); },
                "63 rows, not a multiple of 64"},
        Hostile{"MemberColumns",
                [](T& t) { t.mutable_packs(0)->mutable_members(0)->set_shape(1, 32); },
                "does not fit a matrix [128, 64]"},
        Hostile{"MemberRank", [](T& t) { t.mutable_packs(0)->mutable_members(0)->add_shape(1); },
                "does not fit"},
        Hostile{"Experts", [](T& t) { t.mutable_packs(0)->set_experts(2); }, "does not fit"},
        Hostile{"ExpertsOfTooFewRows",
                [](T& t) {
                  v1::Pack& p = *t.mutable_packs(0);
                  p.set_experts(4);
                  p.mutable_members()->RemoveLast();
                  p.mutable_members(0)->clear_shape();
                  for (const int d : {4, 32, 64}) p.mutable_members(0)->add_shape(d);
                },
                "32 rows, not a multiple of 64"}),
    [](const auto& i) { return std::string(i.param.name); });

TEST_F(TableTest, EmptyIsATable) { EXPECT_TRUE(MakeTable(v1::ModelTable(), {}).ok()); }

}  // namespace
}  // namespace glyd::internal
