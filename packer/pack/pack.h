#ifndef GLYD_PACKER_PACK_PACK_H_
#define GLYD_PACKER_PACK_PACK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/progress.h"
#include "kernels/format/pack.h"

namespace glyd {

struct PackOptions {
  Layout layout = Layout::kMma;
  bool merge = true;
  bool any = false;
  bool force = false;  // replace an output that is there
  int threads = 0;     // 0: one a core that this process may use
  std::string repo;    // glyd.json's source.repo: the MODEL argument as given
  std::string revision;  // 40 hex digits or empty
};

struct PackSummary {
  uint64_t packs = 0, packed_tensors = 0, raw_tensors = 0;
  uint64_t packed_weights = 0;       // in packs
  uint64_t source_bytes = 0;         // of the tensors read
  uint64_t saved_bytes = 0;          // of the safetensors files
  uint64_t pack_bytes = 0;           // of the packs' buffers
  uint64_t raw_bytes = 0;
};

// A source of `glyd pack`: MODEL, resolved.
struct ModelSource {
  Dir dir;
  std::string revision;  // of a Hub snapshot
};

// A directory, or a repo id ("org/name", "org/name@revision") in the local Hub cache. NotFound says where was looked.
absl::StatusOr<ModelSource> FindModel(const std::string& model);

// Packs the checkpoint in `source` into a new directory `out_name` in `out_parent`. It is written beside its place
// under a temporary name, synced, and renamed whole: after a crash at any point the old save, the new one or none is
// there. AlreadyExists where the output is there and force is not set; InvalidArgument where output and source are one.
absl::StatusOr<PackSummary> PackModel(const Dir& source, const Dir& out_parent, const std::string& out_name,
                                      const PackOptions& options, Progress& progress);

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_PACK_H_
