#ifndef GLYD_BASE_FILE_H_
#define GLYD_BASE_FILE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"

namespace glyd {

// errno as a status: the code by what the caller does next (ENOENT NotFound, EACCES
// PermissionDenied, ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE ResourceExhausted, ...), the text
// "`what`: No space left on device".
absl::Status ErrnoStatus(int error, absl::string_view what);

// Reads exactly `bytes` at `offset`, whatever one pread moves. DataLoss, with the file's name and
// the offset, where the file ends before.
absl::Status PreadFull(int fd, void* out, uint64_t bytes, uint64_t offset, absl::string_view name);

// Writes all, whatever one write moves. A failure for want of room names the file and the bytes
// still to write.
absl::Status WriteFull(int fd, const void* data, uint64_t bytes, absl::string_view name);
absl::Status PwriteFull(int fd, const void* data, uint64_t bytes, uint64_t offset,
                        absl::string_view name);

// fsync, with its failure told.
absl::Status Sync(int fd, absl::string_view name);

// A whole small file; ResourceExhausted where it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadWhole(int fd, uint64_t max_bytes, absl::string_view name);

}  // namespace glyd

#endif  // GLYD_BASE_FILE_H_
