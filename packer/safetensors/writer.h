#ifndef GLYD_PACKER_SAFETENSORS_WRITER_H_
#define GLYD_PACKER_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "packer/safetensors/header.h"

namespace glyd {

inline constexpr uint64_t kShardBytes = 5'000'000'000;

// A safetensors file to be written.
struct PlannedFile {
  std::string name;
  std::string head;    // what comes before the data: the header's length, the header, its padding
  uint64_t bytes = 0;  // all of the file
};

// Lays tensors, given in the order of the save with dtype, shape and bytes set, out in files, and
// sets each one's file and offset. A file is closed once it holds `shard_bytes` or more; within a
// file tensors lie by dtype, then by name. One file is called model.safetensors, several
// model-00001-of-0000N.safetensors. Source of all of it: docs/format.md, "safetensors".
std::vector<PlannedFile> PlanFiles(absl::Span<StoredTensor> tensors,
                                   uint64_t shard_bytes = kShardBytes);

// The text of model.safetensors.index.json for these tensors and files.
std::string IndexJson(absl::Span<const StoredTensor> tensors, absl::Span<const PlannedFile> files);

// Whether the writer above gives this name to a shard.
bool IsShardFile(absl::string_view name);

}  // namespace glyd

#endif  // GLYD_PACKER_SAFETENSORS_WRITER_H_
