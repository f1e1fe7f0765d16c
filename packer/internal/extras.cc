#include "packer/internal/extras.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/safetensors/writer.h"

namespace glyd {

namespace {

std::string Shown(const Dir& dir, absl::string_view name) {
  return Printable(absl::StrCat(dir.name(), "/", name), 4096);
}

}  // namespace

bool IsModelExtra(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {
      "config.json", "generation_config.json",   "special_tokens_map.json", "added_tokens.json",
      "merges.txt",  "preprocessor_config.json", "processor_config.json"};
  static constexpr absl::string_view kPrefixes[] = {"tokenizer", "vocab", "chat_template"};
  if (absl::StartsWith(name, ".")) return false;
  return absl::c_linear_search(kNames, name) || absl::EndsWith(name, ".model") ||
         absl::c_any_of(kPrefixes, [&](absl::string_view p) { return absl::StartsWith(name, p); });
}

absl::StatusOr<std::vector<std::string>> ListModelExtras(const Dir& from, Progress& progress) {
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, from.List());
  std::vector<std::string> extras;
  for (const std::string& name : names) {
    if (!IsModelExtra(name)) continue;
    struct stat st;
    if (::fstatat(from.fd(), name.c_str(), &st, 0) == 0 && S_ISDIR(st.st_mode))
      progress.Note(absl::StrCat(Shown(from, name), ": a directory, left out"));
    else
      extras.push_back(name);
  }
  return extras;
}

absl::Status CopyModelExtras(const Dir& from, const std::vector<std::string>& names, Staging& to) {
  for (const std::string& name : names) {
    GLYD_ASSIGN_OR_RETURN(const OpenedFile file, from.OpenFile(name));
    GLYD_RETURN_IF_ERROR(to.CopyFile(file, Shown(from, name), name));
  }
  return absl::OkStatus();
}

std::function<bool(absl::string_view)> ReplacedFiles(const Dir& parent, absl::string_view name,
                                                     std::vector<std::string> extras,
                                                     std::vector<std::string> others) {
  std::vector<std::string> weights = {kSingleFile};
  if (auto index = ReadIndex(parent, absl::StrCat(name, "/", kIndexFile)); index.ok()) {
    weights = {kIndexFile};
    for (const auto& [tensor, file] : *index)
      if (IsShardFile(file)) weights.push_back(file);
  }
  absl::flat_hash_set<std::string> all;
  for (const std::vector<std::string>* some : {&weights, &extras, &others})
    all.insert(some->begin(), some->end());
  return [all = std::move(all)](absl::string_view file) { return all.contains(file); };
}

}  // namespace glyd
