#ifndef GLYD_PACKER_MODEL_FAMILIES_H_
#define GLYD_PACKER_MODEL_FAMILIES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace glyd {

// The model families whose saves are known byte for byte, as data: families.cc is one table, and a
// family more is a few lines of it. Source: docs/format.md, "Which tensors are packed".

// Whether a Linear has a bias. One that the checkpoint holds is always saved; this says when one
// must be there.
enum class BiasRule {
  kNone,
  kAlways,
  kAttention,
  kMlp
};  // kAttention: where config.json's attention_bias is true

struct ModuleRule {
  enum class Kind {
    kLinear,   // PATH.weight [O, K], PATH.bias
    kPlain,    // PATH.weight, saved as it is: a norm, a router
    kExperts,  // PATH [E, O, K], E the config's num_local_experts
  };
  absl::string_view path;  // below the block
  Kind kind = Kind::kLinear;
  BiasRule bias = BiasRule::kNone;
  absl::string_view source =
      "";  // the checkpoint's tensor below the block, where the save renames it
};

struct BlockRule {
  absl::string_view path;  // below the layer; "": the layer itself
  absl::Span<const ModuleRule> modules;
  absl::Span<const absl::string_view> merged;  // Linears whose rows are one matrix, in this order
};

struct Family {
  absl::string_view architecture;  // config.json's architectures[0]
  absl::Span<const BlockRule> layer;
};

// nullptr where it is not known.
const Family* FindFamily(absl::string_view architecture);
// "Qwen3ForCausalLM, Qwen2ForCausalLM, ...": for messages.
std::string KnownArchitectures();

// The groups that a save may hold as one matrix, whatever its family.
absl::Span<const absl::Span<const absl::string_view>> MergedGroups();

// The checkpoint's name of a tensor that the save calls `name`: another one where the family
// renames it.
std::string SourceName(const Family* family, absl::string_view name);
// true for a name that the family's saves do not hold, because they rename it.
bool IsSourceName(const Family* family, absl::string_view name);

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_FAMILIES_H_
