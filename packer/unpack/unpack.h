#ifndef GLYD_PACKER_UNPACK_UNPACK_H_
#define GLYD_PACKER_UNPACK_UNPACK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/progress.h"
#include "packer/model/save.h"

namespace glyd {

struct UnpackSummary {
  uint64_t tensors = 0, bytes = 0, files = 0;
};

// Writes the bf16 checkpoint that `save` was packed from: every tensor bit for bit, checked against
// its sha256 on the way, in shards of 5 GB, with the config and tokenizer files. Published as
// PackModel does.
absl::StatusOr<UnpackSummary> UnpackSave(const Save& save, const Dir& save_dir,
                                         const Dir& out_parent, const std::string& out_name,
                                         bool force, int threads, Progress& progress);

}  // namespace glyd

#endif  // GLYD_PACKER_UNPACK_UNPACK_H_
