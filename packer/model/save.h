#ifndef GLYD_PACKER_MODEL_SAVE_H_
#define GLYD_PACKER_MODEL_SAVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"

namespace glyd {

// A tensor in a safetensors file of a save.
struct SavedTensor {
  std::string name;
  std::string dtype;  // as safetensors names it: "BF16"
  std::vector<uint64_t> shape;
  size_t file = 0;      // index into Save::files
  uint64_t offset = 0;  // from the file's start
  uint64_t bytes = 0;
};

// A tensor saved as it is.
struct RawTensor {
  SavedTensor tensor;
  Digest sha256;
};

// A tensor of the source that is rows of a pack.
struct PackMember {
  std::string name;
  std::vector<uint64_t> shape;
  Digest sha256;  // of its bf16 bytes as the source holds them
};

struct SavedPack {
  std::string name;
  PackMeta meta;
  SavedTensor data, side, base;  // side: blocks or exc; base: block_base or exc_base
  std::vector<PackMember> members;
  uint64_t experts = 0;  // 0: not a pack of experts
  bool transposed = false;
};

struct SaveFile {
  std::string name;
  OpenedFile opened;
};

// A saved model: glyd.json and the headers of its files, open and checked. Opening does all of docs/format.md
// "Verify" that needs no tensor's bytes; a file is opened once, and what is read later is from the same descriptor.
struct Save {
  static absl::StatusOr<Save> Open(const Dir& dir);

  std::string format;  // "glyd-v1", "glyd-v2", "glyd-v3"
  std::string version; // the writer's: "0.25.0"
  std::string source_repo, source_revision;  // revision: empty where null
  Layout layout = Layout::kMma;
  Digest manifest_sha256;  // of glyd.json's bytes
  std::vector<SavedPack> packs;     // in glyd.json's order
  std::vector<RawTensor> tensors;   // in glyd.json's order
  std::vector<SaveFile> files;
  uint64_t packed_bytes = 0;  // of all tensors in the files
  uint64_t bf16_bytes = 0;    // of all tensors as the source holds them
  std::vector<std::string> notes;   // what was skipped: keys of a newer version, files not named by the index
};

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_SAVE_H_
