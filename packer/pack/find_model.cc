#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/looks_like.h"
#include "packer/pack/pack.h"

namespace glyd {
namespace {

constexpr uint64_t kMaxRefBytes = 4096;

// What a Hub snapshot links to is two directories above it: blobs/ beside snapshots/.
constexpr int kSnapshotLevels = 2;

bool IsCommit(absl::string_view s) {
  return s.size() == 40 &&
         absl::c_all_of(s, [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

std::string FromEnvironment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

std::string HubCache() {
  if (const std::string s = FromEnvironment("HF_HUB_CACHE"); !s.empty()) return s;
  if (const std::string s = FromEnvironment("HF_HOME"); !s.empty()) return absl::StrCat(s, "/hub");
  std::string cache = FromEnvironment("XDG_CACHE_HOME");
  if (cache.empty()) cache = absl::StrCat(FromEnvironment("HOME"), "/.cache");
  return absl::StrCat(cache, "/huggingface/hub");
}

// The commit that a path inside snapshots/COMMIT/ is of, and how far above it the cache's own
// directory is.
std::pair<std::string, int> SnapshotOf(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  for (size_t i = parts.size(); i-- > 1;)
    if (parts[i - 1] == "snapshots" && IsCommit(parts[i]))
      return {std::string(parts[i]), static_cast<int>(parts.size() - i) - 1 + kSnapshotLevels};
  return {"", 0};
}

// Whether counting a path's parts counts its directories.
bool IsPlainPath(absl::string_view path) {
  absl::ConsumeSuffix(&path, "/");
  absl::ConsumePrefix(&path, "/");
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return absl::c_none_of(parts,
                         [](absl::string_view p) { return p.empty() || p == "." || p == ".."; });
}

absl::StatusOr<ModelSource> OpenDirectory(const std::string& path) {
  std::string real = path;
  auto [commit, levels] = SnapshotOf(path);
  if (commit.empty() || !IsPlainPath(path)) {
    // The working directory, or a link, may lead into a snapshot without the argument saying so.
    if (char* resolved = ::realpath(path.c_str(), nullptr); resolved != nullptr) {
      const auto inside = SnapshotOf(resolved);
      if (!inside.first.empty()) {
        std::tie(commit, levels) = inside;
        real = resolved;
      }
      ::free(resolved);
    }
  }
  GLYD_ASSIGN_OR_RETURN(Dir dir, Dir::OpenUnder(real, levels));
  return ModelSource{std::move(dir), commit, ""};
}

// "org/name" or "name", each part of the characters that the Hub allows.
bool IsRepoId(absl::string_view id) {
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '/');
  return parts.size() <= 2 &&
         absl::c_all_of(parts, [](absl::string_view p) { return IsValidName(p); }) &&
         !absl::StrContains(id, "--");
}

absl::StatusOr<ModelSource> OpenCached(const std::string& model) {
  const size_t at = model.find('@');
  const std::string id = model.substr(0, at);
  const std::string revision = at == std::string::npos ? "main" : model.substr(at + 1);
  const std::string cache = HubCache();
  if (!IsRepoId(id) || revision.empty() || absl::StrContains(revision, ".."))
    return absl::NotFoundError(
        absl::StrCat(Printable(model, 4096),
                     ": no such directory, and no repo id (ORG/NAME or ORG/NAME@REVISION)"));
  const std::string repo =
      absl::StrCat(cache, "/models--", absl::StrJoin(absl::StrSplit(id, '/'), "--"));
  const std::string shown = absl::StrCat("\"", Printable(model), "\"");
  const absl::StatusOr<Dir> root = Dir::Open(repo);
  if (!root.ok())
    return absl::NotFoundError(absl::StrCat(
        shown, ": no such directory, and not in the Hub cache: ", root.status().message()));
  std::string commit = revision;
  if (!IsCommit(revision)) {
    const std::string ref = absl::StrCat("refs/", revision);
    const absl::StatusOr<OpenedFile> file = root->OpenFile(ref);
    if (!file.ok())
      return absl::NotFoundError(absl::StrCat(shown, ": no revision \"", Printable(revision),
                                              "\" in the Hub cache: ", file.status().message()));
    GLYD_ASSIGN_OR_RETURN(commit, ReadWhole(file->fd.get(), kMaxRefBytes, ref));
    absl::StripAsciiWhitespace(&commit);
    if (!IsCommit(commit))
      return absl::DataLossError(absl::StrCat(Printable(repo, 4096), "/", Printable(ref),
                                              ": holds no commit of 40 hex digits"));
  }
  const absl::StatusOr<Dir> dir =
      Dir::OpenUnder(absl::StrCat(repo, "/snapshots/", commit), kSnapshotLevels);
  if (!dir.ok())
    return absl::NotFoundError(
        absl::StrCat(shown, ": its snapshot is not in the Hub cache: ", dir.status().message()));
  return ModelSource{*dir, commit, ""};
}

}  // namespace

absl::StatusOr<ModelSource> FindModel(const std::string& model) {
  struct stat st;
  if (::stat(model.c_str(), &st) != 0) {
    // A path with a mistake in it is told as a path, not as a repo id.
    const bool path =
        errno != ENOENT || absl::StartsWith(model, "/") || absl::StartsWith(model, ".");
    if (path || model.empty()) return ErrnoStatus(errno, Printable(model, 4096));
    return OpenCached(model);
  }
  if (S_ISDIR(st.st_mode)) return OpenDirectory(model);
  if (!absl::EndsWith(model, ".safetensors")) {
    const UniqueFd fd(::open(model.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const absl::string_view kind = fd ? LooksLike(fd.get()) : "";
    return absl::InvalidArgumentError(absl::StrCat(Printable(model, 4096),
                                                   ": not a directory and no .safetensors file",
                                                   kind.empty() ? "" : "; looks like ", kind));
  }
  const size_t slash = model.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : model.substr(0, slash + 1);
  GLYD_ASSIGN_OR_RETURN(ModelSource source, OpenDirectory(parent));
  source.file = slash == std::string::npos ? model : model.substr(slash + 1);
  return source;
}

absl::StatusOr<ModelSource> FindModelBeneath(const std::shared_ptr<const UniqueFd>& root,
                                             absl::string_view root_name,
                                             absl::string_view relative) {
  absl::StatusOr<Dir> dir = Dir::OpenBeneath(root, root_name, relative);
  std::string file;
  if (!dir.ok() && absl::EndsWith(relative, ".safetensors")) {
    const size_t slash = relative.rfind('/');
    dir = Dir::OpenBeneath(root, root_name,
                           slash == absl::string_view::npos ? "." : relative.substr(0, slash));
    file = std::string(slash == absl::string_view::npos ? relative : relative.substr(slash + 1));
  }
  if (!dir.ok()) return dir.status();
  return ModelSource{*std::move(dir), SnapshotOf(relative).first, std::move(file)};
}

}  // namespace glyd
