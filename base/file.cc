#include "base/file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

// Linux moves at most 0x7ffff000 bytes a call; a round number below keeps offsets aligned.
constexpr uint64_t kMaxIo = uint64_t{1} << 30;

absl::Status WriteError(int error, absl::string_view name, uint64_t left) {
  absl::Status s = ErrnoStatus(error, name);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(
        absl::StrCat(s.message(), " (", left, " bytes of this write still needed)"));
  return s;
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EEXIST:
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(text);
    case EIO:
      return absl::DataLossError(text);
    case EPIPE:
    case ECONNREFUSED:
    case ECONNRESET:
    case EAGAIN:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status PreadFull(int fd, void* out, uint64_t bytes, uint64_t offset, absl::string_view name) {
  uint8_t* p = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, p, std::min(bytes, kMaxIo), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("reading ", name, " at ", offset));
    }
    if (n == 0)
      return absl::DataLossError(
          absl::StrCat(name, ": cut short: ends at ", offset, ", ", bytes, " more bytes expected"));
    p += n, offset += n, bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status WriteFull(int fd, const void* data, uint64_t bytes, absl::string_view name) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, std::min(bytes, kMaxIo));
    if (n < 0) {
      if (errno == EINTR) continue;
      return WriteError(errno, absl::StrCat("writing ", name), bytes);
    }
    p += n, bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status PwriteFull(int fd, const void* data, uint64_t bytes, uint64_t offset,
                        absl::string_view name) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, p, std::min(bytes, kMaxIo), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return WriteError(errno, absl::StrCat("writing ", name, " at ", offset), bytes);
    }
    p += n, offset += n, bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status Sync(int fd, absl::string_view name) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return ErrnoStatus(errno, absl::StrCat("fsync of ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(int fd, uint64_t max_bytes, absl::string_view name) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return ErrnoStatus(errno, name);
  const uint64_t size = static_cast<uint64_t>(st.st_size);
  if (size > max_bytes)
    return absl::ResourceExhaustedError(
        absl::StrCat(name, ": ", size, " bytes, at most ", max_bytes, " are read"));
  std::string out(size, '\0');
  GLYD_RETURN_IF_ERROR(PreadFull(fd, out.data(), size, 0, name));
  return out;
}

}  // namespace glyd
