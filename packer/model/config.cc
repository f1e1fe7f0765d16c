#include "packer/model/config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/json.h"
#include "packer/internal/looks_like.h"

namespace glyd {
namespace {

constexpr uint64_t kMaxConfigBytes = 16'000'000;

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Read(const Dir& dir) {
  const std::string shown = Printable(absl::StrCat(dir.name(), "/", kConfigFile), 4096);
  const absl::StatusOr<OpenedFile> file = dir.OpenFile(kConfigFile);
  if (absl::IsNotFound(file.status()))
    return absl::NotFoundError(absl::StrCat(Printable(dir.name(), 4096), ": no ", kConfigFile));
  if (!file.ok()) return file.status();
  GLYD_ASSIGN_OR_RETURN(std::string text, ReadJson(file->fd.get(), kMaxConfigBytes, shown));
  return Parse(std::move(text), shown);
}

absl::StatusOr<ModelConfig> ModelConfig::Parse(std::string json, absl::string_view shown) {
  ModelConfig c;
  GLYD_RETURN_IF_ERROR(
      json::ParseObject(json, shown, [&](absl::string_view key, json::sj::value v) -> absl::Status {
        const std::string what = absl::StrCat(shown, ": ", Printable(key));
        if (key == "architectures") {
          if (json::IsNull(v)) return absl::OkStatus();
          json::sj::array list;
          GLYD_RETURN_IF_ERROR(json::GetArray(v, what, &list));
          bool first = true;
          return json::ForEachElement(list, what, [&](json::sj::value name) {
            return std::exchange(first, false) ? json::GetString(name, what, &c.architecture)
                                               : absl::OkStatus();
          });
        }
        if (key == "num_hidden_layers")
          return json::GetUint(v, what, &c.num_hidden_layers.emplace());
        if (key == "num_local_experts")
          return json::GetUint(v, what, &c.num_local_experts.emplace());
        const bool tie = key == "tie_word_embeddings", attention = key == "attention_bias";
        if (!tie && !attention && key != "mlp_bias") return absl::OkStatus();
        // Some writers say null where they mean the default.
        if (json::IsNull(v)) return absl::OkStatus();
        bool value = false;
        GLYD_RETURN_IF_ERROR(json::GetBool(v, what, &value));
        if (tie)
          c.tie_word_embeddings = value;
        else
          (attention ? c.attention_bias : c.mlp_bias) = value;
        return absl::OkStatus();
      }));
  return c;
}

}  // namespace glyd
