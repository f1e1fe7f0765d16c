#include "base/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

absl::StatusOr<UniqueFd> OpenAt2(int root, const std::string& path, int flags,
                                 absl::string_view name, absl::string_view root_name) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  long fd;
  // EAGAIN: a rename raced with the walk; the kernel asks for another try.
  int tries = 0;
  do {
    fd = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
  } while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < 100)));
  if (fd >= 0) return UniqueFd(static_cast<int>(fd));
  if (errno == EXDEV)
    return absl::InvalidArgumentError(absl::StrCat(name, ": leaves the allowed root ", root_name));
  return ErrnoStatus(errno, name);
}

bool HasNul(absl::string_view s) { return s.find('\0') != absl::string_view::npos; }

}  // namespace

absl::StatusOr<Dir> Dir::Open(absl::string_view path) { return OpenUnder(path, 0); }

absl::StatusOr<Dir> Dir::OpenUnder(absl::string_view path, int levels) {
  std::string real(path);
  while (real.size() > 1 && real.back() == '/') real.pop_back();
  std::string relative = ".";
  std::string root = real;
  for (int i = 0; i < levels; ++i) {
    const size_t slash = root.rfind('/');
    const std::string last = slash == std::string::npos ? root : root.substr(slash + 1);
    relative = relative == "." ? last : absl::StrCat(last, "/", relative);
    root = slash == std::string::npos ? "." : slash == 0 ? "/" : root.substr(0, slash);
  }
  UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    const int error = errno;
    if (error == ENOTDIR)
      return absl::InvalidArgumentError(absl::StrCat(Printable(path, 4096), ": not a directory"));
    return ErrnoStatus(error, Printable(path, 4096));
  }
  GLYD_ASSIGN_OR_RETURN(
      Dir d, OpenBeneath(std::make_shared<const UniqueFd>(std::move(fd)), root, relative));
  d.name_ = std::string(path);
  return d;
}

absl::StatusOr<Dir> Dir::OpenBeneath(std::shared_ptr<const UniqueFd> root,
                                     absl::string_view root_name, absl::string_view relative) {
  Dir d;
  d.root_ = std::move(root);
  d.root_name_ = std::string(root_name);
  d.relative_ = relative.empty() ? "." : std::string(relative);
  d.name_ = d.relative_ == "." ? d.root_name_ : absl::StrCat(root_name, "/", relative);
  if (HasNul(relative)) return absl::InvalidArgumentError("a path with a NUL byte");
  GLYD_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt2(d.root_->get(), d.relative_, O_RDONLY | O_DIRECTORY,
                                             Printable(d.name_, 4096), d.root_name_));
  d.dir_ = std::make_shared<const UniqueFd>(std::move(fd));
  return d;
}

std::string Dir::In(absl::string_view file) const { return absl::StrCat(name_, "/", file); }

absl::StatusOr<OpenedFile> Dir::OpenFile(absl::string_view name) const {
  const std::string shown = Printable(In(name), 4096);
  if (name.empty() || HasNul(name))
    return absl::InvalidArgumentError(absl::StrCat(shown, ": not a file name"));
  // A link inside the directory may go up as far as the root, so the walk starts there.
  OpenedFile f;
  GLYD_ASSIGN_OR_RETURN(f.fd, OpenAt2(root_->get(), absl::StrCat(relative_, "/", name),
                                      O_RDONLY | O_NONBLOCK, shown, root_name_));
  struct stat st;
  if (::fstat(f.fd.get(), &st) != 0) return ErrnoStatus(errno, shown);
  if (!S_ISREG(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(shown, ": not a regular file"));
  f.size = static_cast<uint64_t>(st.st_size);
  f.device = st.st_dev;
  f.inode = st.st_ino;
  return f;
}

absl::StatusOr<std::vector<std::string>> Dir::List() const {
  return ListDirectory(dir_->get(), name_);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(int dir, absl::string_view what) {
  UniqueFd copy(::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy) return ErrnoStatus(errno, what);
  DIR* d = ::fdopendir(copy.get());
  if (d == nullptr) return ErrnoStatus(errno, what);
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
  if (error != 0) return ErrnoStatus(error, what);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace glyd
