#include "packer/pack/remove_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace glyd {

absl::Status RemoveTree(int parent, const std::string& name) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR && errno != EPERM) return ErrnoStatus(errno, Printable(name));
  UniqueFd dir(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir) return ErrnoStatus(errno, Printable(name));
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        ListDirectory(dir.get(), "listing a directory"));
  for (const std::string& n : names) GLYD_RETURN_IF_ERROR(RemoveTree(dir.get(), n));
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, Printable(name));
  return absl::OkStatus();
}

}  // namespace glyd
