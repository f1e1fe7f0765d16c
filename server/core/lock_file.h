#ifndef GLYD_SERVER_CORE_LOCK_FILE_H_
#define GLYD_SERVER_CORE_LOCK_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace glyd {

// A file that one process holds (flock), with the holder's pid in it; removed at the end.
class LockFile {
 public:
  // AlreadyExists names the holder's pid.
  static absl::StatusOr<LockFile> Acquire(const std::string& path);
  LockFile(LockFile&&) = default;
  LockFile& operator=(LockFile&&) = default;
  ~LockFile();

 private:
  LockFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_LOCK_FILE_H_
