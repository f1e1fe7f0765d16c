#ifndef GLYD_PACKER_MODEL_MANIFEST_H_
#define GLYD_PACKER_MODEL_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"

namespace glyd {

// A tensor of the source that is rows of a pack.
struct PackMember {
  std::string name;
  std::vector<uint64_t> shape;
  Digest sha256 = {};  // of its bf16 bytes as the source holds them
};

struct ManifestPack {
  std::string name;
  PackMeta meta;
  std::vector<PackMember> members;  // in the order of their rows
  uint64_t experts = 0;             // 0: not a pack of experts
  bool transposed = false;          // of experts: the source holds [E, K, O]
};

struct ManifestTensor {
  std::string name;
  Digest sha256 = {};
};

inline constexpr char kManifestFile[] = "glyd.json";

// glyd.json. Source: docs/format.md, "glyd.json" and "Verify".
struct Manifest {
  std::string format;                   // "glyd-v1", "glyd-v2", "glyd-v3"
  std::string version = "0.25.0";       // of the format's writer
  std::string repo;                     // may be a path: any bytes
  std::optional<std::string> revision;  // none: null
  Layout layout = Layout::kMma;
  std::vector<ManifestPack> packs;      // in the save's order
  bool has_tensors = true;              // saves of before 0.25 have none
  std::vector<ManifestTensor> tensors;  // saved as they are, in the save's order
  std::vector<std::string> notes;       // keys of a newer version, skipped

  // The text as Python's json.dumps(x, indent=1) writes it.
  std::string ToJson() const;
  // Checks all that can be checked without the files: keys, versions, formats, shapes, names of
  // members, names that are twice. DataLoss; `shown` names the file in messages.
  static absl::StatusOr<Manifest> Parse(std::string json, absl::string_view shown);
};

// The format that a save of this layout has.
absl::string_view FormatName(Layout layout, bool has_experts);

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_MANIFEST_H_
