#ifndef GLYD_PACKER_MODEL_SAVE_H_
#define GLYD_PACKER_MODEL_SAVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"
#include "packer/model/manifest.h"
#include "packer/safetensors/checkpoint.h"

namespace glyd {

using SavedTensor = StoredTensor;
using SaveFile = TensorFile;

// A tensor saved as it is.
struct RawTensor {
  SavedTensor tensor;
  Digest sha256 = {};
  bool has_sha256 = true;  // false in saves of before 0.25, which name none
};

// A pack and where its buffers are: `side` is blocks (mma) or exc (mma12), `base` is block_base or
// exc_base.
struct SavedPack : ManifestPack {
  SavedTensor data, side, base;
};

// A saved model: glyd.json and the headers of its files, open and checked. Opening does all of
// docs/format.md "Verify" that needs no tensor's bytes; a file is opened once, and what is read
// later is from the same descriptor. Const use is thread-safe.
struct Save {
  // NotFound where the directory has no glyd.json or lacks a shard, DataLoss where something is
  // wrong with them.
  static absl::StatusOr<Save> Open(const Dir& dir);

  std::string format;   // "glyd-v1", "glyd-v2", "glyd-v3"
  std::string version;  // the writer's: "0.25.0"
  // Repo: a path that is not UTF-8 with escapes. Revision: empty where null.
  std::string source_repo, source_revision;
  Layout layout = Layout::kMma;
  Digest manifest_sha256 = {};     // of glyd.json's bytes
  std::vector<SavedPack> packs;    // in glyd.json's order
  std::vector<RawTensor> tensors;  // in glyd.json's order; without hashes there, in the files'
  std::vector<SaveFile> files;
  uint64_t packed_bytes = 0;       // of all tensors in the files
  uint64_t bf16_bytes = 0;         // of all tensors as the source holds them
  std::vector<std::string> notes;  // what was skipped, and what other readers may not take
};

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_SAVE_H_
