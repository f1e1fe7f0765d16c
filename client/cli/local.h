#ifndef GLYD_CLIENT_CLI_LOCAL_H_
#define GLYD_CLIENT_CLI_LOCAL_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/dir.h"

namespace glyd::cli {

// A directory to be written, as its parent and its name there.
struct OutputPlace {
  Dir parent;
  std::string name;
};

// NotFound where the parent is not there; a usage error for a path that names no new directory ("",
// ".", "/").
absl::StatusOr<OutputPlace> OpenOutput(const std::string& path);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_LOCAL_H_
