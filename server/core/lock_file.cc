#include "server/core/lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path) {
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return ErrnoStatus(errno, path);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path);
      char pid[32] = {};
      const ssize_t n = ::pread(fd.get(), pid, sizeof pid - 1, 0);
      return absl::AlreadyExistsError(absl::StrCat(
          path, " is held by ", n > 0 ? absl::StrCat("pid ", std::atoi(pid)) : "another process"));
    }
    // The holder before may have removed the file between the open and the lock.
    struct stat ours, there;
    if (::fstat(fd.get(), &ours) != 0 || ::stat(path.c_str(), &there) != 0 ||
        ours.st_ino != there.st_ino || ours.st_dev != there.st_dev)
      continue;
    const std::string pid = absl::StrCat(::getpid(), "\n");
    if (::ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, path);
    GLYD_RETURN_IF_ERROR(PwriteFull(fd.get(), pid.data(), pid.size(), 0, path));
    return LockFile(std::move(fd), path);
  }
}

LockFile::~LockFile() {
  if (fd_) ::unlink(path_.c_str());
}

}  // namespace glyd
