#ifndef GLYD_PACKER_PACK_PACK_H_
#define GLYD_PACKER_PACK_PACK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/progress.h"
#include "kernels/format/pack.h"

namespace glyd {

struct PackOptions {
  Layout layout = Layout::kMma;
  bool merge = true;
  bool any = false;      // any checkpoint, tensor by tensor; no config.json is read
  bool force = false;    // replace an output that is there
  int threads = 0;       // 0: one a core that this process may use
  std::string repo;      // glyd.json's source.repo: the MODEL argument as given
  std::string revision;  // 40 hex digits or empty
  std::string file;      // with `any`: this one file of the source's directory alone
  // A file of the save is closed once it holds this much; another number makes another save.
  uint64_t shard_bytes = 5'000'000'000;
};

struct PackSummary {
  uint64_t packs = 0, packed_tensors = 0, raw_tensors = 0;
  uint64_t packed_weights = 0;  // in packs
  uint64_t source_bytes = 0;    // of the tensors read
  uint64_t saved_bytes = 0;     // of the safetensors files
  uint64_t pack_bytes = 0;      // of the packs' buffers
  uint64_t raw_bytes = 0;
  std::vector<std::string> warnings;  // what a user must be told, however quiet
};

// A source of `glyd pack`: MODEL, resolved.
struct ModelSource {
  Dir dir;
  std::string revision;  // of a Hub snapshot: its commit
  std::string file;      // MODEL was this .safetensors file of the directory; empty: the directory
};

// A directory, a .safetensors file (for PackOptions::any), or a repo id ("org/name",
// "org/name@revision") in the local Hub cache ($HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub). A directory that is there wins.
// NotFound says where was looked.
absl::StatusOr<ModelSource> FindModel(const std::string& model);

// A directory or .safetensors file beneath an open root, which no link leaves: for a Hub cache the
// root is the cache, or what holds it.
absl::StatusOr<ModelSource> FindModelBeneath(const std::shared_ptr<const UniqueFd>& root,
                                             absl::string_view root_name,
                                             absl::string_view relative);

// Packs the checkpoint in `source` into a new directory `out_name` in `out_parent`. It is written
// beside its place under a temporary name, synced, and renamed whole: after a crash at any point
// the old save, the new one or none is there. The process must ignore SIGXFSZ, or a limit on file
// sizes kills it. AlreadyExists where the output is there and force is not set, or another process
// writes it; InvalidArgument where output and source are one, or the source cannot be packed;
// DataLoss where its files are damaged; FailedPrecondition where they change meanwhile;
// ResourceExhausted, with the bytes needed, for want of room; Cancelled where `progress` says so.
absl::StatusOr<PackSummary> PackModel(const Dir& source, const Dir& out_parent,
                                      const std::string& out_name, const PackOptions& options,
                                      Progress& progress);

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_PACK_H_
