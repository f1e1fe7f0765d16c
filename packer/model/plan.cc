#include "packer/model/plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "packer/internal/text.h"
#include "packer/model/families.h"

namespace glyd {
namespace {

constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";
constexpr absl::string_view kFinalNorm = "model.norm.weight";
constexpr absl::string_view kHead = "lm_head";
constexpr absl::string_view kHeadWeight = "lm_head.weight";

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", Printable(name), "\""); }

bool IsPackableMatrix(const StoredTensor& t) {
  return t.dtype == "BF16" && t.shape.size() == 2 && IsPackable(t.shape[0], t.shape[1]);
}

// [E, O, K], each of the E matrices packable and all of them as one, too.
bool IsPackableStack(const StoredTensor& t) {
  return t.dtype == "BF16" && t.shape.size() == 3 && t.shape[0] != 0 &&
         IsPackable(t.shape[1], t.shape[2]) && t.shape[1] <= UINT64_MAX / t.shape[0] &&
         IsPackable(t.shape[0] * t.shape[1], t.shape[2]);
}

// One Linear as the checkpoint has it.
struct Linear {
  absl::string_view module;  // below its block: "q_proj"
  std::string path;          // "model.layers.0.self_attn.q_proj"
  const StoredTensor* weight = nullptr;
  const StoredTensor* bias = nullptr;  // nullptr: has none
  bool packable = false;
};

class FamilyPlanner {
 public:
  FamilyPlanner(const Family& family, const ModelConfig& config, const Checkpoint& checkpoint,
                bool merge)
      : family_(family), config_(config), checkpoint_(checkpoint), merge_(merge) {}

  absl::StatusOr<SavePlan> Run() {
    GLYD_RETURN_IF_ERROR(CheckDtypes());
    if (!config_.num_hidden_layers.has_value())
      return absl::InvalidArgumentError(absl::StrCat("config.json has no num_hidden_layers, which ",
                                                     family_.architecture, " needs"));
    GLYD_ASSIGN_OR_RETURN(const StoredTensor* embedding, Require(kEmbedding));
    const bool embedding_first = embedding->shape.size() == 2 && embedding->shape[1] % 128 == 0;
    if (!embedding_first) AddRaw(rest_, kEmbedding, embedding);
    for (uint64_t i = 0; i < *config_.num_hidden_layers; ++i)
      for (const BlockRule& block : family_.layer)
        GLYD_RETURN_IF_ERROR(AddBlock(absl::StrCat("model.layers.", i, "."), block));
    GLYD_ASSIGN_OR_RETURN(const StoredTensor* norm, Require(kFinalNorm));
    AddRaw(rest_, kFinalNorm, norm);
    GLYD_RETURN_IF_ERROR(AddHead(embedding));
    GLYD_RETURN_IF_ERROR(CheckAllUsed());

    if (embedding_first) AddRaw(plan_.items, kEmbedding, embedding);
    std::move(packed_.begin(), packed_.end(), std::back_inserter(plan_.items));
    std::move(rest_.begin(), rest_.end(), std::back_inserter(plan_.items));
    return std::move(plan_);
  }

 private:
  absl::Status CheckDtypes() const {
    for (const StoredTensor& t : checkpoint_.tensors())
      if (t.dtype != "BF16")
        return absl::InvalidArgumentError(absl::StrCat(
            checkpoint_.files()[t.file].shown, ": tensor ", Quoted(t.name), " is ", t.dtype,
            "; the checkpoint must be BF16 throughout (--any keeps other tensors as they are)"));
    return absl::OkStatus();
  }

  absl::StatusOr<const StoredTensor*> Require(absl::string_view name) {
    const StoredTensor* t = checkpoint_.Find(name);
    if (t == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(name), " is missing in the checkpoint; ", family_.architecture,
          " with ", *config_.num_hidden_layers, " layers has it"));
    used_.insert(t);
    return t;
  }

  static void AddRaw(std::vector<PlanItem>& to, absl::string_view name, const StoredTensor* t) {
    PlanItem& item = to.emplace_back();
    item.name = std::string(name);
    item.members = {{item.name, t}};
  }

  // The rows of `members` as one matrix, under the first one's path, and then their biases.
  void AddPack(absl::Span<const Linear* const> members) {
    PlanItem& item = packed_.emplace_back();
    item.name = members[0]->path;
    item.cols = members[0]->weight->shape[1];
    for (const Linear* l : members) {
      item.members.push_back({absl::StrCat(l->path, ".weight"), l->weight});
      item.rows += l->weight->shape[0];
    }
    for (const Linear* l : members)
      if (l->bias != nullptr) AddRaw(packed_, absl::StrCat(l->path, ".bias"), l->bias);
  }

  absl::StatusOr<Linear> ReadLinear(absl::string_view prefix, const ModuleRule& rule) {
    Linear l{rule.path, absl::StrCat(prefix, rule.path)};
    GLYD_ASSIGN_OR_RETURN(l.weight, Require(absl::StrCat(l.path, ".weight")));
    l.packable = IsPackableMatrix(*l.weight);
    const bool needs_bias = rule.bias == BiasRule::kAlways ||
                            (rule.bias == BiasRule::kAttention && config_.attention_bias) ||
                            (rule.bias == BiasRule::kMlp && config_.mlp_bias);
    const std::string bias = absl::StrCat(l.path, ".bias");
    if (needs_bias || checkpoint_.Find(bias) != nullptr) {
      GLYD_ASSIGN_OR_RETURN(l.bias, Require(bias));
    }
    return l;
  }

  absl::Status AddExperts(absl::string_view prefix, const ModuleRule& rule) {
    const std::string name = absl::StrCat(prefix, rule.path);
    const absl::string_view below = rule.source.empty() ? rule.path : rule.source;
    GLYD_ASSIGN_OR_RETURN(const StoredTensor* t, Require(absl::StrCat(prefix, below)));
    if (!config_.num_local_experts.has_value())
      return absl::InvalidArgumentError(absl::StrCat("config.json has no num_local_experts, which ",
                                                     family_.architecture, " needs"));
    const uint64_t experts = *config_.num_local_experts;
    if (t->shape.size() != 3 || t->shape[0] != experts)
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(t->name), " has ", t->shape.size(),
                       " dimensions, the first ", t->shape.empty() ? 0 : t->shape[0], "; ", experts,
                       " experts of config.json need 3 dimensions, the first ", experts));
    if (!IsPackableStack(*t)) {
      AddRaw(rest_, name, t);
      return absl::OkStatus();
    }
    PlanItem& item = packed_.emplace_back();
    item.name = name;
    item.members = {{name, t}};
    item.experts = t->shape[0];
    item.rows = t->shape[0] * t->shape[1];
    item.cols = t->shape[2];
    item.own_weight = true;
    return absl::OkStatus();
  }

  absl::Status AddBlock(const std::string& layer, const BlockRule& block) {
    const std::string prefix = block.path.empty() ? layer : absl::StrCat(layer, block.path, ".");
    std::vector<Linear> linears;
    for (const ModuleRule& rule : block.modules) {
      if (rule.kind != ModuleRule::Kind::kLinear) continue;
      GLYD_ASSIGN_OR_RETURN(Linear l, ReadLinear(prefix, rule));
      linears.push_back(std::move(l));
    }
    const std::vector<const Linear*> group = MergedGroup(linears, block.merged);
    size_t next = 0;
    for (const ModuleRule& rule : block.modules) {
      if (rule.kind == ModuleRule::Kind::kExperts) {
        GLYD_RETURN_IF_ERROR(AddExperts(prefix, rule));
      } else if (rule.kind == ModuleRule::Kind::kPlain) {
        const std::string name = absl::StrCat(prefix, rule.path, ".weight");
        GLYD_ASSIGN_OR_RETURN(
            const StoredTensor* t,
            Require(rule.source.empty() ? name : absl::StrCat(prefix, rule.source)));
        AddRaw(rest_, name, t);
      } else {
        const Linear& l = linears[next++];
        if (std::find(group.begin(), group.end(), &l) != group.end()) continue;
        if (l.packable) {
          AddPack({&l});
        } else {
          AddRaw(rest_, absl::StrCat(l.path, ".weight"), l.weight);
          if (l.bias != nullptr) AddRaw(rest_, absl::StrCat(l.path, ".bias"), l.bias);
        }
      }
    }
    if (!group.empty()) AddPack(group);
    return absl::OkStatus();
  }

  // The members of the block's merged group, in its order; none where they are not to be merged.
  std::vector<const Linear*> MergedGroup(const std::vector<Linear>& linears,
                                         absl::Span<const absl::string_view> names) const {
    std::vector<const Linear*> group;
    if (!merge_) return group;
    for (absl::string_view name : names)
      for (const Linear& l : linears)
        if (l.module == name) group.push_back(&l);
    for (const Linear* l : group)
      if (!l->packable || l->weight->shape[1] != group[0]->weight->shape[1] ||
          (l->bias == nullptr) != (group[0]->bias == nullptr))
        return {};
    return group;
  }

  absl::Status AddHead(const StoredTensor* embedding) {
    const StoredTensor* own = checkpoint_.Find(kHeadWeight);
    const bool tied = config_.tie_word_embeddings.value_or(own == nullptr);
    if (tied) {
      if (own != nullptr) {
        used_.insert(own);
        plan_.dropped_head = own;
        plan_.embedding = embedding;
      }
      if (!IsPackableMatrix(*embedding)) AddRaw(rest_, kHeadWeight, embedding);
      return absl::OkStatus();
    }
    GLYD_ASSIGN_OR_RETURN(const StoredTensor* head, Require(kHeadWeight));
    if (!IsPackableMatrix(*head)) {
      AddRaw(rest_, kHeadWeight, head);
      return absl::OkStatus();
    }
    Linear l{kHead, std::string(kHead), head};
    AddPack({&l});
    return absl::OkStatus();
  }

  // A weight that no rule names would be lost without a word.
  absl::Status CheckAllUsed() const {
    std::vector<std::string> unused;
    for (const StoredTensor& t : checkpoint_.tensors())
      if (!used_.contains(&t)) unused.push_back(Quoted(t.name));
    if (unused.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        family_.architecture, " with ", *config_.num_hidden_layers, " layers has no tensor ",
        ListSome(unused), "; --any packs a checkpoint tensor by tensor"));
  }

  const Family& family_;
  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const bool merge_;
  SavePlan plan_;
  std::vector<PlanItem> packed_, rest_;
  absl::flat_hash_set<const StoredTensor*> used_;
};

}  // namespace

BufferNames PackBuffers(absl::string_view pack, Layout layout, bool own_weight) {
  std::string stem = absl::StrCat(pack, ".glyd_");
  if (own_weight) {
    const size_t dot = pack.rfind('.');
    stem = dot == absl::string_view::npos
               ? absl::StrCat("glyd_", pack, "_")
               : absl::StrCat(pack.substr(0, dot + 1), "glyd_", pack.substr(dot + 1), "_");
  }
  const bool mma = layout == Layout::kMma;
  return {absl::StrCat(stem, "data"), absl::StrCat(stem, mma ? "blocks" : "exc"),
          absl::StrCat(stem, mma ? "block_base" : "exc_base")};
}

bool IsPackable(uint64_t rows, uint64_t cols) { return CheckShape(rows, cols).ok(); }

absl::StatusOr<SavePlan> PlanFamily(const ModelConfig& config, const Checkpoint& checkpoint,
                                    bool merge) {
  const Family* family = FindFamily(config.architecture);
  if (family == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(
        config.architecture.empty()
            ? "config.json names no architecture"
            : absl::StrCat("unknown architecture ", Quoted(config.architecture)),
        "; known are ", KnownArchitectures(), "; --any packs any checkpoint tensor by tensor"));
  return FamilyPlanner(*family, config, checkpoint, merge).Run();
}

absl::StatusOr<SavePlan> PlanAny(const Checkpoint& checkpoint) {
  SavePlan plan;
  // Names of tensors in the save's files, and of packs: a pack whose names are not free stays as it
  // is.
  absl::flat_hash_set<std::string> tensors, packs;
  for (const StoredTensor& t : checkpoint.tensors()) tensors.insert(t.name);
  for (const StoredTensor& t : checkpoint.tensors()) {
    PlanItem& raw = plan.items.emplace_back();
    raw.name = t.name;
    raw.members = {{t.name, &t}};
    const bool stack = IsPackableStack(t);
    if (!stack && !IsPackableMatrix(t)) continue;
    PlanItem pack = raw;
    absl::string_view module = t.name;
    pack.own_weight = stack || !absl::ConsumeSuffix(&module, ".weight");
    if (!pack.own_weight) pack.name = std::string(module);
    const BufferNames mma = PackBuffers(pack.name, Layout::kMma, pack.own_weight);
    const BufferNames mma12 = PackBuffers(pack.name, Layout::kMma12, pack.own_weight);
    const std::string* buffers[] = {&mma.data, &mma.side, &mma.base, &mma12.side, &mma12.base};
    bool free = packs.insert(pack.name).second;
    for (const std::string* b : buffers) free = free && !tensors.contains(*b);
    if (!free) {
      plan.notes.push_back(absl::StrCat("tensor ", Quoted(t.name),
                                        " is kept as it is: another has its pack's names"));
      continue;
    }
    for (const std::string* b : buffers) tensors.insert(*b);
    pack.experts = stack ? t.shape[0] : 0;
    pack.rows = stack ? t.shape[0] * t.shape[1] : t.shape[0];
    pack.cols = t.shape.back();
    raw = std::move(pack);
  }
  return plan;
}

}  // namespace glyd
