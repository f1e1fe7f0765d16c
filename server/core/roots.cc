#include "server/core/roots.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"

namespace glyd {

absl::StatusOr<Roots> Roots::Open(const std::vector<RootConfig>& roots) {
  Roots out;
  for (const RootConfig& r : roots) {
    UniqueFd fd(::open(r.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
      return ErrnoStatus(errno, absl::StrCat("root ", r.name, ": ", Printable(r.directory, 4096)));
    out.configs_.push_back(r);
    out.fds_.push_back(std::make_shared<const UniqueFd>(std::move(fd)));
  }
  return out;
}

absl::StatusOr<RootedPath> Roots::Resolve(absl::string_view path, bool to_write) const {
  const auto bad = [&](absl::string_view why) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("path \"", Printable(path), "\": ", why)),
        "BAD_PATH");
  };
  if (path.empty()) return bad("empty; want ROOT/relative");
  if (path.size() > 4096) return bad(absl::StrCat(path.size(), " bytes, at most 4096"));
  if (path.find('\0') != absl::string_view::npos) return bad("holds a NUL byte");
  const size_t slash = path.find('/');
  std::vector<std::string> names;
  for (const RootConfig& r : configs_) names.push_back(r.name);
  const std::string there = names.empty()
                                ? "this daemon has no roots: start it with --root NAME=DIR"
                                : absl::StrCat("the roots are ", absl::StrJoin(names, ", "));
  if (slash == 0) return bad(absl::StrCat("absolute; want ROOT/relative, ", there));
  const absl::string_view name = path.substr(0, slash);
  if (!IsValidName(name)) return bad(absl::StrCat("want ROOT/relative, ", there));
  absl::string_view relative = slash == absl::string_view::npos ? "" : path.substr(slash + 1);
  while (!relative.empty() && relative.back() == '/') relative.remove_suffix(1);
  for (absl::string_view part : absl::StrSplit(relative, '/'))
    if (part == "..") return bad("\"..\" is not allowed");
  if (!relative.empty() && relative.front() == '/') return bad("an empty part");
  for (size_t i = 0; i < configs_.size(); ++i) {
    if (configs_[i].name != name) continue;
    if (to_write && !configs_[i].writable)
      return WithReason(
          absl::PermissionDeniedError(absl::StrCat(
              "root ", name, " is read-only; the operator makes it writable with --root ", name,
              "=DIR:rw")),
          "READ_ONLY_ROOT");
    return RootedPath{configs_[i].name, relative.empty() ? "." : std::string(relative), fds_[i]};
  }
  return WithReason(absl::NotFoundError(absl::StrCat("path \"", Printable(path), "\": no root \"",
                                                     Printable(name), "\"; ", there)),
                    "UNKNOWN_ROOT");
}

}  // namespace glyd
