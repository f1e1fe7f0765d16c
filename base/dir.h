#ifndef GLYD_BASE_DIR_H_
#define GLYD_BASE_DIR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"

namespace glyd {

// A regular file open for reading, as it was when it was opened.
struct OpenedFile {
  UniqueFd fd;
  uint64_t size = 0;
  uint64_t device = 0, inode = 0;
};

// Names in an open directory, sorted by bytes, without "." and ".."; `what` is how a failure calls
// it.
absl::StatusOr<std::vector<std::string>> ListDirectory(int dir, absl::string_view what);

// A directory beneath a root that no path, link or name in it can leave (openat2, RESOLVE_BENEATH).
// Copies share the root. Thread-safe.
class Dir {
 public:
  // `path` itself is the root.
  static absl::StatusOr<Dir> Open(absl::string_view path);
  // `path` with a root `levels` directories above it (a Hub snapshot links to ../../blobs: 2).
  static absl::StatusOr<Dir> OpenUnder(absl::string_view path, int levels);
  // `relative` beneath an open directory; `root_name` is how messages call the root. "." is the
  // root itself.
  static absl::StatusOr<Dir> OpenBeneath(std::shared_ptr<const UniqueFd> root,
                                         absl::string_view root_name, absl::string_view relative);

  // A regular file, opened O_RDONLY|O_NONBLOCK|O_CLOEXEC. InvalidArgument where the name leaves the
  // root
  // ("leaves the allowed root NAME") or is no regular file; NotFound where there is none.
  absl::StatusOr<OpenedFile> OpenFile(absl::string_view name) const;
  // Names in the directory, sorted by bytes, without "." and "..".
  absl::StatusOr<std::vector<std::string>> List() const;

  // What messages call it: the path as the user gave it.
  const std::string& name() const { return name_; }
  // The directory itself, for *at calls; valid while this or a copy lives.
  int fd() const { return dir_->get(); }

 private:
  Dir() = default;
  std::string In(absl::string_view file) const;

  std::shared_ptr<const UniqueFd> root_, dir_;
  std::string root_name_, relative_, name_;
};

}  // namespace glyd

#endif  // GLYD_BASE_DIR_H_
