#include "glyd/model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/attached.h"
#include "client/src/table.h"
#include "kernels/format/pack.h"
#include "kernels/format/read_tensor.h"

namespace glyd {
namespace {

using internal::TensorPlace;

// Of a tensor that is saved as it is, given out at once.
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

using Sink = std::function<void(absl::Span<const uint8_t>)>;

absl::Status NoTensor(const ModelInfo& info, absl::string_view name) {
  return absl::NotFoundError(
      absl::StrCat("model \"", Printable(info.name), "\" has no tensor \"", Printable(name), "\""));
}

}  // namespace

Model::Model(std::unique_ptr<internal::AttachedModel> attached) : attached_(std::move(attached)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelInfo& Model::info() const { return attached_->info(); }
std::string Model::lease_id() const { return attached_->lease_id(); }
absl::Status Model::lease_status() const { return attached_->lease().status(); }
uint64_t Model::memory_bytes() const { return attached_->memory_bytes(); }
uint64_t Model::memory_inode() const { return attached_->memory_inode(); }
absl::Span<const ModelTensor> Model::tensors() const { return attached_->table().tensors; }
absl::Span<const ModelPack> Model::packs() const { return attached_->table().packs; }

const ModelTensor* Model::FindTensor(absl::string_view name) const {
  const internal::Table& t = attached_->table();
  const auto it = t.places.find(name);
  return it == t.places.end() || it->second.pack != TensorPlace::kRaw
             ? nullptr
             : &t.tensors[it->second.index];
}

const ModelPack* Model::FindPack(absl::string_view name) const {
  for (const ModelPack& p : packs())
    if (p.name == name) return &p;
  return nullptr;
}

absl::Status Model::ReadTensor(absl::string_view name, const Sink& sink) const {
  const internal::Table& t = attached_->table();
  const auto it = t.places.find(name);
  if (it == t.places.end()) return NoTensor(info(), name);
  if (it->second.pack == TensorPlace::kRaw) {
    const absl::Span<const uint8_t> bytes = t.tensors[it->second.index].bytes;
    for (uint64_t at = 0; at < bytes.size(); at += kPieceBytes)
      sink(bytes.subspan(at, kPieceBytes));
    return absl::OkStatus();
  }
  const ModelPack& pack = t.packs[it->second.pack];
  const ModelPackMember& member = pack.members[it->second.index];
  GLYD_RETURN_IF_ERROR(pack.checked->Check());
  const PackView& view = pack.checked->view();
  return ReadPackedTensor(
      pack.cols, {member.row0, member.rows, pack.transposed ? pack.experts : 0},
      [&view](uint64_t row0, uint64_t rows, uint16_t* out) {
        DecodeRows(view, row0, rows, out);
        return absl::OkStatus();
      },
      sink);
}

std::vector<std::string> Model::TensorNames() const {
  std::vector<std::string> names;
  names.reserve(attached_->table().places.size());
  for (const ModelPack& p : packs())
    for (const ModelPackMember& m : p.members) names.push_back(m.name);
  for (const ModelTensor& t : tensors()) names.push_back(t.name);
  return names;
}

absl::StatusOr<std::array<uint8_t, 32>> Model::TensorSha256(absl::string_view name) const {
  const internal::Table& t = attached_->table();
  const auto it = t.places.find(name);
  if (it == t.places.end()) return NoTensor(info(), name);
  const TensorPlace& at = it->second;
  return at.pack == TensorPlace::kRaw ? t.tensors[at.index].sha256
                                      : t.packs[at.pack].members[at.index].sha256;
}

absl::StatusOr<std::vector<uint16_t>> Model::Bias(const ModelPack& pack) const {
  std::vector<uint16_t> out;
  out.reserve(pack.rows);
  for (const ModelPackMember& m : pack.members) {
    absl::string_view path = m.name;
    if (!absl::ConsumeSuffix(&path, ".weight")) path = {};
    const ModelTensor* bias = path.empty() ? nullptr : FindTensor(absl::StrCat(path, ".bias"));
    if (bias == nullptr)
      return absl::NotFoundError(absl::StrCat("pack \"", Printable(pack.name),
                                              "\": the save holds no bias of \"", Printable(m.name),
                                              "\""));
    if (bias->dtype != "BF16" || bias->bytes.size() != m.rows * 2)
      return absl::DataLossError(absl::StrCat("tensor \"", Printable(bias->name),
                                              "\": ", bias->dtype, ", ", bias->bytes.size(),
                                              " bytes, ", m.rows * 2, " of BF16 expected"));
    const auto* weights = reinterpret_cast<const uint16_t*>(bias->bytes.data());
    out.insert(out.end(), weights, weights + m.rows);
  }
  return out;
}

absl::Status Model::Release() && { return attached_->Release(); }

absl::Status DecodeRows(const ModelPack& pack, uint64_t row0, uint64_t rows,
                        absl::Span<uint16_t> out) {
  const std::string of = absl::StrCat("pack \"", Printable(pack.name), "\"");
  if (pack.checked == nullptr)
    return absl::InvalidArgumentError(of + " is not one of an attached model");
  const PackView& view = pack.checked->view();
  if (row0 % kStepRows != 0 || rows % kStepRows != 0 || row0 > view.meta.rows ||
      rows > view.meta.rows - row0)
    return absl::InvalidArgumentError(absl::StrCat(of, ": rows ", row0, " to ", row0, " + ", rows,
                                                   " of ", view.meta.rows, ", both multiples of ",
                                                   kStepRows));
  if (out.size() != rows * view.meta.cols)
    return absl::InvalidArgumentError(absl::StrCat(of, ": room for ", out.size(), " weights, ",
                                                   rows * view.meta.cols, " are to be decoded"));
  GLYD_RETURN_IF_ERROR(pack.checked->Check());
  DecodeRows(view, row0, rows, out.data());
  return absl::OkStatus();
}

}  // namespace glyd
