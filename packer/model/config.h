#ifndef GLYD_PACKER_MODEL_CONFIG_H_
#define GLYD_PACKER_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dir.h"

namespace glyd {

// What the packer needs of a model's config.json.
struct ModelConfig {
  std::string architecture;  // architectures[0]; empty where there is none
  std::optional<uint64_t> num_hidden_layers;
  std::optional<bool> tie_word_embeddings;
  std::optional<uint64_t> num_local_experts;
  bool attention_bias = false, mlp_bias = false;

  // NotFound where there is no config.json; DataLoss where it is none.
  static absl::StatusOr<ModelConfig> Read(const Dir& dir);
  static absl::StatusOr<ModelConfig> Parse(std::string json, absl::string_view shown);
};

inline constexpr char kConfigFile[] = "config.json";

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_CONFIG_H_
