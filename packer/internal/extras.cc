#include "packer/internal/extras.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace glyd {

bool IsModelExtra(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {
      "config.json", "generation_config.json",   "special_tokens_map.json", "added_tokens.json",
      "merges.txt",  "preprocessor_config.json", "processor_config.json"};
  static constexpr absl::string_view kPrefixes[] = {"tokenizer", "vocab", "chat_template"};
  if (absl::StartsWith(name, ".")) return false;
  return absl::c_linear_search(kNames, name) || absl::EndsWith(name, ".model") ||
         absl::c_any_of(kPrefixes, [&](absl::string_view p) { return absl::StartsWith(name, p); });
}

absl::Status CopyModelExtras(const Dir& from, Staging& to, Progress& progress) {
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, from.List());
  for (const std::string& name : names) {
    if (!IsModelExtra(name)) continue;
    const std::string shown = Printable(absl::StrCat(from.name(), "/", name), 4096);
    struct stat st;
    if (::fstatat(from.fd(), name.c_str(), &st, 0) == 0 && S_ISDIR(st.st_mode)) {
      progress.Note(absl::StrCat(shown, ": a directory, left out"));
      continue;
    }
    GLYD_ASSIGN_OR_RETURN(const OpenedFile file, from.OpenFile(name));
    GLYD_RETURN_IF_ERROR(to.CopyFile(file, shown, name));
  }
  return absl::OkStatus();
}

}  // namespace glyd
