#ifndef GLYD_SERVER_CORE_ROOTS_H_
#define GLYD_SERVER_CORE_ROOTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/child.h"
#include "server/core/config.h"

namespace glyd {

// A path of a request, ROOT/relative, resolved as far as glydd goes: the root is an open directory,
// the rest is opened beneath it by a worker.
struct RootedPath {
  std::string root, relative;
  SharedFd fd;
};

// The operator's roots, open. Thread-safe.
class Roots {
 public:
  // Opens each; a failure names the root.
  static absl::StatusOr<Roots> Open(const std::vector<RootConfig>& roots);

  // InvalidArgument, reason BAD_PATH, for what is not ROOT/relative, for "..", absolute parts, NUL
  // or over 4096 bytes; NotFound, reason UNKNOWN_ROOT, naming the roots there are;
  // PermissionDenied, reason READ_ONLY_ROOT.
  absl::StatusOr<RootedPath> Resolve(absl::string_view path, bool to_write) const;

  const std::vector<RootConfig>& configs() const { return configs_; }

 private:
  std::vector<RootConfig> configs_;
  std::vector<SharedFd> fds_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_ROOTS_H_
