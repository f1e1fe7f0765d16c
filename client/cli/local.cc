#include "client/cli/local.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"

namespace glyd::cli {

absl::StatusOr<OutputPlace> OpenOutput(const std::string& path) {
  absl::string_view rest = path;
  while (rest.size() > 1 && rest.back() == '/') rest.remove_suffix(1);
  const size_t slash = rest.rfind('/');
  const absl::string_view name = slash == absl::string_view::npos ? rest : rest.substr(slash + 1);
  const absl::string_view parent = slash == absl::string_view::npos ? "."
                                   : slash == 0                     ? "/"
                                                                    : rest.substr(0, slash);
  if (name.empty() || name == "." || name == "..")
    return UsageError(
        absl::StrCat("output \"", Printable(path), "\" names no directory to be made"));
  GLYD_ASSIGN_OR_RETURN(Dir dir, Dir::Open(parent));
  return OutputPlace{std::move(dir), std::string(name)};
}

}  // namespace glyd::cli
