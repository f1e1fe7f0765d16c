#include "packer/model/family_shapes.h"

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "packer/model/families.h"
#include "packer/model/plan.h"

namespace glyd {
namespace {

constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";
constexpr absl::string_view kFirstQ = "model.layers.0.self_attn.q_proj.weight";

// What a tensor whose name ends so has: dimensions, and which of them is the hidden size (none:
// -1). The bytes are the sha256's, so that this leaves one shape.
struct ShapeRule {
  absl::string_view end;
  size_t dimensions;
  int hidden;
};
constexpr ShapeRule kShapes[] = {
    {".bias", 1, -1},
    {"norm.weight", 1, -1},
    {"embed_tokens.weight", 2, 1},
    {"lm_head.weight", 2, 1},
    {".q_proj.weight", 2, 1},
    {".k_proj.weight", 2, 1},
    {".v_proj.weight", 2, 1},
    {".o_proj.weight", 2, 0},
    {".gate_proj.weight", 2, 1},
    {".up_proj.weight", 2, 1},
    {".down_proj.weight", 2, 0},
    {".router.weight", 2, 1},
    {".experts.gate_up_proj", 3, 2},
    {".experts.down_proj", 3, 1},
};

const StoredTensor* FindRaw(const Save& save, absl::string_view name) {
  const auto it =
      absl::c_find_if(save.tensors, [&](const RawTensor& r) { return r.tensor.name == name; });
  return it == save.tensors.end() ? nullptr : &it->tensor;
}

// --any merges nothing and packs an embedding that packs.
bool IsFamilySave(const Save& save, const ModelConfig& config) {
  if (FindFamily(config.architecture) == nullptr) return false;
  const StoredTensor* embedding = FindRaw(save, kEmbedding);
  if (embedding == nullptr) return false;
  return absl::c_any_of(save.packs, [](const SavedPack& p) { return p.members.size() > 1; }) ||
         (embedding->dtype == "BF16" && embedding->shape.size() == 2 &&
          IsPackable(embedding->shape[0], embedding->shape[1]));
}

std::optional<uint64_t> HiddenSize(const Save& save) {
  for (const SavedPack& p : save.packs)
    if (p.members[0].name == kFirstQ) return p.meta.cols;
  const StoredTensor* q = FindRaw(save, kFirstQ);
  if (q == nullptr) q = FindRaw(save, kEmbedding);
  return q != nullptr && q->shape.size() == 2 ? std::optional(q->shape[1]) : std::nullopt;
}

}  // namespace

absl::Status CheckFamilyShapes(const Save& save, const ModelConfig& config,
                               absl::string_view shown) {
  if (!IsFamilySave(save, config)) return absl::OkStatus();
  const std::optional<uint64_t> hidden = HiddenSize(save);
  for (const RawTensor& raw : save.tensors) {
    const StoredTensor& t = raw.tensor;
    const auto bad = [&](const auto&... why) {
      return absl::DataLossError(absl::StrCat(save.files[t.file].shown, ": tensor \"",
                                              Printable(t.name), "\" is ", t.dtype, " [",
                                              absl::StrJoin(t.shape, ", "), "]; in a save of ",
                                              config.architecture, " (", shown, ") it ", why...));
    };
    if (t.dtype != "BF16") return bad("is BF16");
    for (const ShapeRule& rule : kShapes) {
      if (!absl::EndsWith(t.name, rule.end)) continue;
      if (t.shape.size() != rule.dimensions) return bad("has ", rule.dimensions, " dimensions");
      if (rule.hidden >= 0 && hidden.has_value() &&
          t.shape[static_cast<size_t>(rule.hidden)] != *hidden)
        return bad("has ", *hidden, " in dimension ", rule.hidden);
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace glyd
