#include "packer/pack/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "packer/pack/remove_tree.h"

namespace glyd {
namespace {

constexpr uint64_t kCopyBytes = 1 << 20;
// Of the old output's temporary name, where two names cannot be exchanged.
constexpr absl::string_view kOldSuffix = "-old";

using FileId = std::pair<uint64_t, uint64_t>;  // device, inode

UniqueFd OpenParent(int dir) {
  return UniqueFd(::openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// f(descriptor, id) for a directory and every one above it, nearest first, as far as they can be
// seen, until it returns false.
template <typename F>
void WalkUp(int dir, F f) {
  UniqueFd above;
  FileId last;
  for (bool first = true;; first = false) {
    struct stat st;
    if (::fstat(dir, &st) != 0) return;
    const FileId id(st.st_dev, st.st_ino);
    if ((!first && id == last) || !f(dir, id)) return;
    last = id;
    UniqueFd next = OpenParent(dir);
    if (!next) return;
    above = std::move(next);
    dir = above.get();
  }
}

std::vector<FileId> PathUp(int dir) {
  std::vector<FileId> ids;
  WalkUp(dir, [&](int, const FileId& id) {
    ids.push_back(id);
    return true;
  });
  return ids;
}

// The directory of a model in the Hub cache (models--ORG--NAME), for one in its snapshots/COMMIT.
std::optional<FileId> HubCacheOf(int dir, const std::string& commit) {
  std::optional<FileId> cache;
  const std::string snapshot = absl::StrCat("snapshots/", commit);
  WalkUp(dir, [&](int above, const FileId& id) {
    struct stat st;
    if (::fstatat(above, snapshot.c_str(), &st, 0) != 0) return true;
    cache = id;
    return false;
  });
  return cache;
}

bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == absl::string_view::npos && name.find('\0') == absl::string_view::npos;
}

// Takes the lock of an output. The file is removed by its last holder, so a lock counts only while
// the name still leads to the locked file.
absl::StatusOr<UniqueFd> Lock(int parent, const std::string& name, absl::string_view output) {
  for (;;) {
    UniqueFd fd(::openat(parent, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return ErrnoStatus(errno, absl::StrCat(output, ": its lock ", Printable(name)));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock of ", output));
      char holder[32] = {};
      const ssize_t n = ::pread(fd.get(), holder, sizeof holder - 1, 0);
      return absl::AlreadyExistsError(
          absl::StrCat(output, ": being written by process ",
                       n > 0 ? Printable({holder, static_cast<size_t>(n)}) : "(unknown)"));
    }
    struct stat ours, named;
    if (::fstat(fd.get(), &ours) != 0) return ErrnoStatus(errno, name);
    if (::fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        ours.st_ino != named.st_ino || ours.st_dev != named.st_dev)
      continue;
    // For the message above alone: a full disk is told of where its bytes are counted.
    const std::string pid = absl::StrCat(::getpid());
    if (::ftruncate(fd.get(), 0) == 0)
      PwriteFull(fd.get(), pid.data(), pid.size(), 0, name).IgnoreError();
    return fd;
  }
}

absl::StatusOr<std::vector<std::string>> ListAt(int parent, const std::string& name) {
  UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return ErrnoStatus(errno, name);
  return ListDirectory(fd.get(), "listing a directory");
}

// A rename may be interrupted where the file system is another process's or another machine's.
int Rename(int parent, const std::string& from, const std::string& to, unsigned flags) {
  int rc;
  do {
    rc = ::renameat2(parent, from.c_str(), parent, to.c_str(), flags);
  } while (rc != 0 && errno == EINTR);
  return rc;
}

// Some file systems have no renameat2: a plain rename then, after a look.
absl::Status RenameToFreeName(int parent, const std::string& from, const std::string& to,
                              absl::string_view shown) {
  if (Rename(parent, from, to, RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (errno == EEXIST)
    return absl::AlreadyExistsError(absl::StrCat(shown, ": appeared while it was written"));
  if (errno != EINVAL && errno != ENOSYS)
    return ErrnoStatus(errno, absl::StrCat("rename to ", shown));
  struct stat st;
  if (::fstatat(parent, to.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
    return absl::AlreadyExistsError(absl::StrCat(shown, ": appeared while it was written"));
  if (::renameat(parent, from.c_str(), parent, to.c_str()) != 0)
    return ErrnoStatus(errno, absl::StrCat("rename to ", shown));
  return absl::OkStatus();
}

}  // namespace

struct Staging::State {
  Dir parent;
  Options options;
  std::string name, temp, lock_name, shown;
  bool replaces = false;
  mode_t mode = 0;  // of what is replaced
  bool done = false;
  UniqueFd lock, dir;

  explicit State(const Dir& p) : parent(p) {}
  std::string In(absl::string_view file) const { return absl::StrCat(shown, "/", Printable(file)); }
  absl::Status CheckOutput();
  absl::Status CheckApart(const struct stat* output) const;
  absl::Status RemoveStale();
  absl::Status MakeTemp();
};

Staging::Staging(std::unique_ptr<State> state) : state_(std::move(state)) {}
Staging::Staging(Staging&&) noexcept = default;

Staging::~Staging() {
  if (state_ == nullptr) return;
  const int parent = state_->parent.fd();
  // After an exchange the temporary name holds the old output.
  if (!state_->temp.empty() && (!state_->done || state_->replaces))
    RemoveTree(parent, state_->temp).IgnoreError();
  if (state_->lock) ::unlinkat(parent, state_->lock_name.c_str(), 0);
}

const std::string& Staging::shown() const { return state_->shown; }

// Input and output, where the latter is there, neither the same nor one in the other: a later run
// would take the one for a part of the other, or replace it.
absl::Status Staging::State::CheckApart(const struct stat* output) const {
  if (options.source == nullptr) return absl::OkStatus();
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(shown, ": ", why));
  };
  const std::vector<FileId> above_output = PathUp(parent.fd());
  const std::vector<FileId> source = PathUp(options.source->fd());
  const auto in_output_path = [&](const FileId& id) {
    return absl::c_linear_search(above_output, id);
  };
  if (output != nullptr && !source.empty()) {
    const FileId id(output->st_dev, output->st_ino);
    if (source[0] == id) return refuse("output and input are the same directory");
    if (absl::c_linear_search(source, id)) return refuse("the input lies in this output");
  }
  if (!options.source_is_file && !source.empty() && in_output_path(source[0]))
    return refuse("the output would lie in the input directory");
  if (!options.source_revision.empty()) {
    const std::optional<FileId> cache = HubCacheOf(options.source->fd(), options.source_revision);
    if (cache.has_value() && in_output_path(*cache))
      return refuse("the output would lie in the Hub cache of the input");
  }
  return absl::OkStatus();
}

absl::Status Staging::State::CheckOutput() {
  struct stat st;
  replaces = false;
  if (::fstatat(parent.fd(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? CheckApart(nullptr) : ErrnoStatus(errno, shown);
  if (S_ISLNK(st.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat(shown, ": is a symbolic link; not written through"));
  GLYD_RETURN_IF_ERROR(CheckApart(&st));
  if (!options.force)
    return absl::AlreadyExistsError(
        absl::StrCat(shown, ": is there already (--force replaces it)"));
  if (!S_ISDIR(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(shown, ": is there and is no directory"));
  const struct stat old = st;
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListAt(parent.fd(), name));
  bool ours = files.empty();
  for (const std::string& f : files) {
    ours = ours || absl::c_linear_search(options.replaceable, f);
    const std::string path = absl::StrCat(name, "/", f);
    if (::fstatat(parent.fd(), path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return ErrnoStatus(errno, In(f));
    if (!S_ISREG(st.st_mode) || !options.written(f))
      return absl::InvalidArgumentError(absl::StrCat(
          In(f), ": is nothing that would be written here: ", shown, " is not replaced"));
    const FileId id(st.st_dev, st.st_ino);
    if (absl::c_linear_search(options.source_files, id))
      return absl::InvalidArgumentError(
          absl::StrCat(In(f), ": output and input are the same file"));
  }
  if (!ours)
    return absl::InvalidArgumentError(absl::StrCat(shown, ": is there and holds none of ",
                                                   absl::StrJoin(options.replaceable, ", "),
                                                   ": not replaced"));
  replaces = true;
  mode = old.st_mode & 07777;
  return absl::OkStatus();
}

// With the lock held, nobody is at work on what is left of this output's temporaries.
absl::Status Staging::State::RemoveStale() {
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ListDirectory(parent.fd(), "listing a directory"));
  const std::string prefix = absl::StrCat(".", name, ".glyd-tmp-");
  struct stat st;
  for (const std::string& n : names) {
    if (!absl::StartsWith(n, prefix) || !absl::EndsWith(n, kOldSuffix)) continue;
    if (::fstatat(parent.fd(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) break;
    GLYD_RETURN_IF_ERROR(RenameToFreeName(parent.fd(), n, name, shown));
    GLYD_RETURN_IF_ERROR(Sync(parent.fd(), parent.name()));
  }
  for (const std::string& n : names)
    if (absl::StartsWith(n, prefix)) GLYD_RETURN_IF_ERROR(RemoveTree(parent.fd(), n));
  return absl::OkStatus();
}

absl::Status Staging::State::MakeTemp() {
  for (;;) {
    uint8_t random[4];
    if (::getrandom(random, sizeof random, 0) != sizeof random)
      return ErrnoStatus(errno, "getrandom");
    const std::string n = absl::StrCat(".", name, ".glyd-tmp-", ::getpid(), "-", Hex(random));
    if (::mkdirat(parent.fd(), n.c_str(), replaces ? 0700 : 0777) != 0) {
      if (errno == EEXIST) continue;
      return ErrnoStatus(errno, absl::StrCat("a directory beside ", shown));
    }
    temp = n;
    dir =
        UniqueFd(::openat(parent.fd(), n.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!dir) return ErrnoStatus(errno, shown);
    return absl::OkStatus();
  }
}

absl::StatusOr<Staging> Staging::Create(const Dir& parent, const std::string& name,
                                        Options options) {
  auto state = std::make_unique<State>(parent);
  state->shown = Printable(absl::StrCat(parent.name(), "/", name), 4096);
  if (!IsPlainFileName(name))
    return absl::InvalidArgumentError(
        absl::StrCat(state->shown, ": \"", Printable(name), "\" is no name for an output"));
  state->name = name;
  state->options = std::move(options);
  state->lock_name = absl::StrCat(".", name, ".glyd-lock");
  // Once before the lock, so that a refusal leaves no trace, and once with it.
  GLYD_RETURN_IF_ERROR(state->CheckOutput());
  GLYD_ASSIGN_OR_RETURN(state->lock, Lock(parent.fd(), state->lock_name, state->shown));
  Staging staging(std::move(state));
  GLYD_RETURN_IF_ERROR(staging.state_->RemoveStale());
  GLYD_RETURN_IF_ERROR(staging.state_->CheckOutput());
  GLYD_RETURN_IF_ERROR(staging.state_->MakeTemp());
  return staging;
}

absl::Status Staging::RemoveLeftovers(const Dir& parent, const std::string& name) {
  auto state = std::make_unique<State>(parent);
  state->shown = Printable(absl::StrCat(parent.name(), "/", name), 4096);
  state->name = name;
  state->lock_name = absl::StrCat(".", name, ".glyd-lock");
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, parent.List());
  const std::string prefix = absl::StrCat(".", name, ".glyd-tmp-");
  if (absl::c_none_of(names, [&](const std::string& n) {
        return n == state->lock_name || absl::StartsWith(n, prefix);
      }))
    return absl::OkStatus();
  GLYD_ASSIGN_OR_RETURN(state->lock, Lock(parent.fd(), state->lock_name, state->shown));
  const Staging held(std::move(state));  // its end removes the lock
  return held.state_->RemoveStale();
}

absl::Status Staging::CheckRoom(uint64_t bytes) const {
  struct statvfs fs;
  if (::fstatvfs(state_->parent.fd(), &fs) != 0) return ErrnoStatus(errno, state_->shown);
  uint64_t free = 0;
  if (!CheckedMul(fs.f_bavail, fs.f_frsize, &free) || free >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(state_->shown, ": needs at least ", bytes,
                                                   " bytes, its file system has ", free, " free"));
}

absl::StatusOr<UniqueFd> Staging::CreateFile(absl::string_view name, uint64_t bytes) {
  const std::string n(name), what = state_->In(name);
  UniqueFd fd(::openat(state_->dir.get(), n.c_str(),
                       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return ErrnoStatus(errno, what);
  if (bytes == 0) return fd;
  while (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) break;
    return absl::Status(
        ErrnoStatus(errno, "").code(),
        absl::StrCat(ErrnoStatus(errno, what).message(), " (needs ", bytes, " bytes)"));
  }
  return fd;
}

absl::Status Staging::WriteFile(absl::string_view name, absl::string_view content) {
  GLYD_ASSIGN_OR_RETURN(UniqueFd fd, CreateFile(name, 0));
  GLYD_RETURN_IF_ERROR(WriteFull(fd.get(), content.data(), content.size(), state_->In(name)));
  return Sync(fd.get(), state_->In(name));
}

absl::Status Staging::CopyFile(const OpenedFile& from, absl::string_view shown,
                               absl::string_view name) {
  GLYD_ASSIGN_OR_RETURN(UniqueFd fd, CreateFile(name, 0));
  std::vector<char> buffer(std::min(kCopyBytes, from.size));
  for (uint64_t at = 0; at < from.size;) {
    const uint64_t n = std::min<uint64_t>(buffer.size(), from.size - at);
    GLYD_RETURN_IF_ERROR(PreadFull(from.fd.get(), buffer.data(), n, at, shown));
    GLYD_RETURN_IF_ERROR(WriteFull(fd.get(), buffer.data(), n, state_->In(name)));
    at += n;
  }
  return Sync(fd.get(), state_->In(name));
}

absl::Status Staging::TellNeed(absl::Status status, uint64_t bytes) {
  if (!absl::IsResourceExhausted(status) || ReasonOf(status) == kReasonNoMemory) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), "; the whole output needs ", bytes, " bytes"));
}

absl::Status Staging::Publish() {
  State& s = *state_;
  GLYD_RETURN_IF_ERROR(Sync(s.dir.get(), s.shown));
  if (s.replaces) {
    // It may have changed meanwhile, and what it holds now is about to go.
    GLYD_RETURN_IF_ERROR(s.CheckOutput());
  }
  if (s.replaces) {
    // Who might read the old output may read the new one, and nobody else.
    if (::fchmod(s.dir.get(), s.mode) != 0) return ErrnoStatus(errno, s.shown);
    const int parent = s.parent.fd();
    if (Rename(parent, s.temp, s.name, RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS)
        return ErrnoStatus(errno, absl::StrCat("rename to ", s.shown));
      // Without an exchange there is a moment with no output at all, never one with a mixed one.
      const std::string old = absl::StrCat(s.temp, kOldSuffix);
      if (::renameat(parent, s.name.c_str(), parent, old.c_str()) != 0)
        return ErrnoStatus(errno, absl::StrCat("rename of the old ", s.shown));
      if (absl::Status moved = RenameToFreeName(parent, s.temp, s.name, s.shown); !moved.ok()) {
        ::renameat(parent, old.c_str(), parent, s.name.c_str());
        return moved;
      }
      // From here on it is a leftover as any other: never to come back in part.
      if (::renameat(parent, old.c_str(), parent, s.temp.c_str()) != 0) s.temp = old;
    }
  } else {
    GLYD_RETURN_IF_ERROR(RenameToFreeName(s.parent.fd(), s.temp, s.name, s.shown));
  }
  s.done = true;
  const absl::Status synced = Sync(s.parent.fd(), s.parent.name());
  if (synced.ok()) return synced;
  return absl::Status(synced.code(), absl::StrCat(s.shown,
                                                  " is in its place, but may be lost if the "
                                                  "machine stops now: ",
                                                  synced.message()));
}

}  // namespace glyd
