#include "packer/model/families.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace glyd {
namespace {

using Kind = ModuleRule::Kind;

constexpr absl::string_view kQkv[] = {"q_proj", "k_proj", "v_proj"};
constexpr absl::string_view kGateUp[] = {"gate_proj", "up_proj"};
constexpr absl::Span<const absl::string_view> kMergedGroups[] = {kQkv, kGateUp};

constexpr ModuleRule kAttention[] = {
    {"q_proj", Kind::kLinear, BiasRule::kAttention},
    {"k_proj", Kind::kLinear, BiasRule::kAttention},
    {"v_proj", Kind::kLinear, BiasRule::kAttention},
    {"o_proj", Kind::kLinear, BiasRule::kAttention},
};
constexpr ModuleRule kQwen2Attention[] = {
    {"q_proj", Kind::kLinear, BiasRule::kAlways},
    {"k_proj", Kind::kLinear, BiasRule::kAlways},
    {"v_proj", Kind::kLinear, BiasRule::kAlways},
    {"o_proj"},
};
constexpr ModuleRule kMistralAttention[] = {{"q_proj"}, {"k_proj"}, {"v_proj"}, {"o_proj"}};
constexpr ModuleRule kQwen3Attention[] = {
    {"q_proj", Kind::kLinear, BiasRule::kAttention},
    {"k_proj", Kind::kLinear, BiasRule::kAttention},
    {"v_proj", Kind::kLinear, BiasRule::kAttention},
    {"o_proj", Kind::kLinear, BiasRule::kAttention},
    {"q_norm", Kind::kPlain},
    {"k_norm", Kind::kPlain},
};
constexpr ModuleRule kMlp[] = {{"gate_proj"}, {"up_proj"}, {"down_proj"}};
constexpr ModuleRule kMlpWithBias[] = {
    {"gate_proj", Kind::kLinear, BiasRule::kMlp},
    {"up_proj", Kind::kLinear, BiasRule::kMlp},
    {"down_proj", Kind::kLinear, BiasRule::kMlp},
};
constexpr ModuleRule kNorms[] = {
    {"input_layernorm", Kind::kPlain},
    {"post_attention_layernorm", Kind::kPlain},
};
constexpr ModuleRule kGraniteMoe[] = {
    {"router", Kind::kPlain, BiasRule::kNone, "router.layer.weight"},
    {"experts.gate_up_proj", Kind::kExperts, BiasRule::kNone, "input_linear.weight"},
    {"experts.down_proj", Kind::kExperts, BiasRule::kNone, "output_linear.weight"},
};

constexpr BlockRule kQwen3Layer[] = {
    {"self_attn", kQwen3Attention, kQkv}, {"mlp", kMlp, kGateUp}, {"", kNorms, {}}};
constexpr BlockRule kQwen2Layer[] = {
    {"self_attn", kQwen2Attention, kQkv}, {"mlp", kMlp, kGateUp}, {"", kNorms, {}}};
constexpr BlockRule kLlamaLayer[] = {
    {"self_attn", kAttention, kQkv}, {"mlp", kMlpWithBias, kGateUp}, {"", kNorms, {}}};
constexpr BlockRule kMistralLayer[] = {
    {"self_attn", kMistralAttention, kQkv}, {"mlp", kMlp, kGateUp}, {"", kNorms, {}}};
constexpr BlockRule kGraniteMoeLayer[] = {
    {"self_attn", kAttention, kQkv}, {"", kNorms, {}}, {"block_sparse_moe", kGraniteMoe, {}}};

constexpr Family kFamilies[] = {
    {"Qwen3ForCausalLM", kQwen3Layer},   {"Qwen2ForCausalLM", kQwen2Layer},
    {"LlamaForCausalLM", kLlamaLayer},   {"MistralForCausalLM", kMistralLayer},
    {"GraniteForCausalLM", kLlamaLayer}, {"GraniteMoeForCausalLM", kGraniteMoeLayer},
};

}  // namespace

const Family* FindFamily(absl::string_view architecture) {
  for (const Family& f : kFamilies)
    if (f.architecture == architecture) return &f;
  return nullptr;
}

std::string KnownArchitectures() {
  return absl::StrJoin(kFamilies, ", ", [](std::string* out, const Family& f) {
    absl::StrAppend(out, f.architecture);
  });
}

absl::Span<const absl::Span<const absl::string_view>> MergedGroups() { return kMergedGroups; }

namespace {

// What follows "model.layers.N." in a name; empty where that is not how it starts.
absl::string_view BelowLayer(absl::string_view name) {
  uint64_t layer;
  if (!absl::ConsumePrefix(&name, "model.layers.")) return "";
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), &layer)) return "";
  return name.substr(dot + 1);
}

// f(block, module) for each module that the family renames, until one gives true.
template <typename F>
bool AnyRenamed(const Family* family, F f) {
  if (family == nullptr) return false;
  for (const BlockRule& block : family->layer)
    for (const ModuleRule& m : block.modules)
      if (!m.source.empty() && f(block, m)) return true;
  return false;
}

}  // namespace

std::string SourceName(const Family* family, absl::string_view name) {
  const absl::string_view below = BelowLayer(name);
  std::string source(name);
  AnyRenamed(family, [&](const BlockRule& block, const ModuleRule& m) {
    const absl::string_view weight = m.kind == Kind::kExperts ? "" : ".weight";
    if (below != absl::StrCat(block.path, ".", m.path, weight)) return false;
    source = absl::StrCat(name.substr(0, name.size() - below.size()), block.path, ".", m.source);
    return true;
  });
  return source;
}

bool IsSourceName(const Family* family, absl::string_view name) {
  const absl::string_view below = BelowLayer(name);
  return AnyRenamed(family, [&](const BlockRule& block, const ModuleRule& m) {
    return below == absl::StrCat(block.path, ".", m.source);
  });
}

}  // namespace glyd
