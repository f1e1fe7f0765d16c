#ifndef GLYD_PACKER_PACK_REMOVE_TREE_H_
#define GLYD_PACKER_PACK_REMOVE_TREE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace glyd {

// Names in an open directory, sorted by bytes, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(int dir);

// Removes `name` in the open directory `parent`, with all that is in it. Links are removed, never
// followed.
absl::Status RemoveTree(int parent, const std::string& name);

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_REMOVE_TREE_H_
