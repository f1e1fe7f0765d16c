#include "packer/pack/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace glyd {

absl::StatusOr<std::vector<std::string>> ListDirectory(int dir) {
  UniqueFd copy(::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* d = copy ? ::fdopendir(copy.get()) : nullptr;
  if (d == nullptr) return ErrnoStatus(errno, "listing a directory");
  copy.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* e = ::readdir(d)) {
    const std::string n = e->d_name;
    if (n != "." && n != "..") names.push_back(n);
    errno = 0;
  }
  const int error = errno;
  ::closedir(d);
  if (error != 0) return ErrnoStatus(error, "listing a directory");
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(int parent, const std::string& name) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR && errno != EPERM) return ErrnoStatus(errno, Printable(name));
  UniqueFd dir(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir) return ErrnoStatus(errno, Printable(name));
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(dir.get()));
  for (const std::string& n : names) GLYD_RETURN_IF_ERROR(RemoveTree(dir.get(), n));
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, Printable(name));
  return absl::OkStatus();
}

}  // namespace glyd
