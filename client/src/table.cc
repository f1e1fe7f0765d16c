#include "client/src/table.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "glyd/v1/model.pb.h"
#include "kernels/device/device.h"

namespace glyd::internal {
namespace {

constexpr int kMaxRank = 16;
constexpr size_t kDigestBytes = 32;

// Bits of an element, by safetensors' name of its type; 0 for a name it does not have.
int DtypeBits(absl::string_view dtype) {
  static constexpr struct {
    absl::string_view name;
    int bits;
  } kTypes[] = {{"BF16", 16},   {"F16", 16},    {"F32", 32},    {"F64", 64},    {"U8", 8},
                {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},    {"I32", 32},
                {"U64", 64},    {"I64", 64},    {"C64", 64},    {"BOOL", 8},    {"F8_E4M3", 8},
                {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& t : kTypes)
    if (t.name == dtype) return t.bits;
  return 0;
}

// One table's checks, its subject ("pack \"x\"") at the front of every message.
class Reader {
 public:
  Reader(std::string subject, absl::Span<const uint8_t> memory)
      : subject_(std::move(subject)), memory_(memory) {}

  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return absl::DataLossError(absl::StrCat("table: ", subject_, ": ", args...));
  }

  absl::StatusOr<absl::Span<const uint8_t>> View(bool present, const v1::Buffer& b,
                                                 absl::string_view what) const {
    uint64_t end;
    if (!present) return Bad(what, " is missing");
    if (b.offset() % kBufferAlign != 0)
      return Bad(what, " at ", b.offset(), ", not a multiple of ", kBufferAlign);
    if (!CheckedAdd(b.offset(), b.bytes(), &end) || end > memory_.size())
      return Bad(what, " of ", b.bytes(), " bytes at ", b.offset(), ", the memory has ",
                 memory_.size(), " bytes");
    return memory_.subspan(b.offset(), b.bytes());
  }

  // The product of a shape's dimensions.
  absl::StatusOr<uint64_t> Elements(absl::Span<const uint64_t> shape) const {
    if (shape.size() > kMaxRank) return Bad(shape.size(), " dimensions, at most ", kMaxRank);
    uint64_t n = 1;
    for (const uint64_t d : shape)
      if (!CheckedMul(n, d, &n)) return Bad("shape [", absl::StrJoin(shape, ", "), "] overflows");
    return n;
  }

  absl::Status Digest(absl::string_view from, std::array<uint8_t, kDigestBytes>* out) const {
    if (from.size() != kDigestBytes)
      return Bad("a sha256 of ", from.size(), " bytes, ", kDigestBytes, " expected");
    std::copy(from.begin(), from.end(), out->begin());
    return absl::OkStatus();
  }

 private:
  const std::string subject_;
  const absl::Span<const uint8_t> memory_;
};

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", Printable(name), "\""); }

absl::StatusOr<ModelTensor> MakeTensor(const v1::Tensor& t, absl::Span<const uint8_t> memory) {
  const Reader r(absl::StrCat("tensor ", Quoted(t.name())), memory);
  ModelTensor out;
  out.name = t.name();
  out.dtype = t.dtype();
  out.shape.assign(t.shape().begin(), t.shape().end());
  const int bits = DtypeBits(t.dtype());
  if (bits == 0) return r.Bad("dtype ", Quoted(t.dtype()), " is not known");
  GLYD_ASSIGN_OR_RETURN(const uint64_t elements, r.Elements(out.shape));
  GLYD_ASSIGN_OR_RETURN(out.bytes, r.View(t.has_buffer(), t.buffer(), "data"));
  uint64_t all_bits;
  if (!CheckedMul(elements, bits, &all_bits) || all_bits % 8 != 0 ||
      all_bits / 8 != out.bytes.size())
    return r.Bad(t.dtype(), " [", absl::StrJoin(out.shape, ", "), "] in ", out.bytes.size(),
                 " bytes");
  GLYD_RETURN_IF_ERROR(r.Digest(t.sha256(), &out.sha256));
  return out;
}

// The members' rows, stacked in order, are the matrix.
absl::Status FillMembers(const v1::Pack& p, const Reader& r, ModelPack* out) {
  uint64_t row = 0;
  for (const v1::Member& m : p.members()) {
    ModelPackMember& member = out->members.emplace_back();
    member.name = m.name();
    member.shape.assign(m.shape().begin(), m.shape().end());
    GLYD_ASSIGN_OR_RETURN(const uint64_t elements, r.Elements(member.shape));
    const std::string of =
        absl::StrCat("member ", Quoted(m.name()), " [", absl::StrJoin(member.shape, ", "), "]");
    const bool fits = out->experts == 0 ? member.shape.size() == 2 && member.shape[1] == out->cols
                                        : p.members_size() == 1 && member.shape.size() == 3 &&
                                              member.shape[0] == out->experts &&
                                              member.shape[out->transposed ? 1 : 2] == out->cols;
    if (!fits) return r.Bad(of, " does not fit a matrix [", out->rows, ", ", out->cols, "]");
    member.row0 = row;
    member.rows = elements / out->cols;
    const uint64_t one = out->experts == 0 ? member.rows : member.rows / out->experts;
    if (one == 0 || one % kStepRows != 0)
      return r.Bad(of, ": ", one, " rows, not a multiple of ", kStepRows);
    if (!CheckedAdd(row, member.rows, &row) || row > out->rows)
      return r.Bad(of, " ends at row ", row, " of ", out->rows);
    GLYD_RETURN_IF_ERROR(r.Digest(m.sha256(), &member.sha256));
  }
  if (row != out->rows) return r.Bad("its members have ", row, " rows, the matrix ", out->rows);
  return absl::OkStatus();
}

absl::StatusOr<ModelPack> MakePack(const v1::Pack& p, absl::Span<const uint8_t> memory) {
  const Reader r(absl::StrCat("pack ", Quoted(p.name())), memory);
  const absl::StatusOr<Layout> layout = ParseLayout(p.layout());
  if (!layout.ok()) return r.Bad("layout ", Quoted(p.layout()), " is not known");
  if (const absl::Status s = CheckShape(p.rows(), p.cols()); !s.ok()) return r.Bad(s.message());
  ModelPack out;
  out.name = p.name();
  out.layout = p.layout();
  out.rows = p.rows();
  out.cols = p.cols();
  out.experts = p.experts();
  out.transposed = p.transposed();
  if (*layout == Layout::kMma) {
    if (p.tiers_size() != static_cast<int>(out.tiers.size()))
      return r.Bad(p.tiers_size(), " tiers, ", out.tiers.size(), " expected");
    std::copy(p.tiers().begin(), p.tiers().end(), out.tiers.begin());
  } else {
    out.hb = p.hb();
  }
  PackView view;
  view.meta = {*layout, out.rows, out.cols, out.tiers, out.hb};
  GLYD_ASSIGN_OR_RETURN(out.data, r.View(p.has_data(), p.data(), "data"));
  GLYD_ASSIGN_OR_RETURN(out.side, r.View(p.has_side(), p.side(), "side"));
  GLYD_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> base,
                        r.View(p.has_base(), p.base(), "base"));
  if (out.data.size() != DataBytes(view.meta))
    return r.Bad("data of ", out.data.size(), " bytes, [", out.rows, ", ", out.cols, "] in ",
                 out.layout, " takes ", DataBytes(view.meta));
  const uint64_t base_bytes = (StepCount(view.meta) + 1) * sizeof(int32_t);
  if (base.size() != base_bytes)
    return r.Bad("base of ", base.size(), " bytes, ", base_bytes, " expected");
  out.base = absl::MakeConstSpan(reinterpret_cast<const int32_t*>(base.data()),
                                 base.size() / sizeof(int32_t));
  GLYD_RETURN_IF_ERROR(FillMembers(p, r, &out));
  view.data = out.data.data();
  view.data_bytes = out.data.size();
  view.side = out.side.data();
  view.side_bytes = out.side.size();
  view.base = out.base.data();
  view.base_count = out.base.size();
  out.checked = std::make_shared<CheckedPack>(view);
  return out;
}

}  // namespace

absl::Status CheckedPack::Check() {
  absl::MutexLock lock(&mutex_);
  if (!checked_) {
    verdict_ = CheckPack(view_);
    checked_ = true;
  }
  return verdict_;
}

absl::StatusOr<Table> MakeTable(const v1::ModelTable& table, absl::Span<const uint8_t> memory) {
  if (table.allocation_bytes() > memory.size())
    return absl::DataLossError(absl::StrCat("table: describes ", table.allocation_bytes(),
                                            " bytes, the memory has ", memory.size()));
  Table out;
  absl::flat_hash_set<absl::string_view> packs;
  const auto place = [&](const std::string& name, TensorPlace where) -> absl::Status {
    if (name.empty()) return absl::DataLossError("table: a tensor without a name");
    if (!out.places.emplace(name, where).second)
      return absl::DataLossError(absl::StrCat("table: tensor ", Quoted(name), " is there twice"));
    return absl::OkStatus();
  };
  out.packs.reserve(table.packs_size());
  out.tensors.reserve(table.tensors_size());
  out.places.reserve(table.packs_size() + table.tensors_size());
  for (const v1::Pack& p : table.packs()) {
    if (p.name().empty()) return absl::DataLossError("table: a pack without a name");
    if (!packs.insert(p.name()).second)
      return absl::DataLossError(absl::StrCat("table: pack ", Quoted(p.name()), " is there twice"));
    GLYD_ASSIGN_OR_RETURN(ModelPack pack, MakePack(p, memory));
    for (size_t i = 0; i < pack.members.size(); ++i)
      GLYD_RETURN_IF_ERROR(place(pack.members[i].name, {out.packs.size(), i}));
    out.packs.push_back(std::move(pack));
  }
  for (const v1::Tensor& t : table.tensors()) {
    GLYD_RETURN_IF_ERROR(place(t.name(), {TensorPlace::kRaw, out.tensors.size()}));
    GLYD_ASSIGN_OR_RETURN(ModelTensor tensor, MakeTensor(t, memory));
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace glyd::internal
