#ifndef GLYD_PACKER_PACK_REMOVE_TREE_H_
#define GLYD_PACKER_PACK_REMOVE_TREE_H_

#include <string>

#include "absl/status/status.h"

namespace glyd {

// Removes `name` in the open directory `parent`, with all that is in it. Links are removed, never
// followed.
absl::Status RemoveTree(int parent, const std::string& name);

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_REMOVE_TREE_H_
