#ifndef GLYD_PACKER_VERIFY_SAVE_JOBS_H_
#define GLYD_PACKER_VERIFY_SAVE_JOBS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/progress.h"
#include "packer/internal/hash_jobs.h"
#include "packer/model/save.h"

namespace glyd {

// What becomes of a save's tensors as they were in the source: called on the thread that decodes,
// for each tensor in order; several tensors are at work at once. `tensor` counts the packs' members
// first, in the save's order, then the tensors saved as they are.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual absl::Status Begin(size_t /*tensor*/) { return absl::OkStatus(); }
  // The next bytes.
  virtual absl::Status Bytes(size_t /*tensor*/, absl::Span<const uint8_t>) {
    return absl::OkStatus();
  }
  // After the last: OK, or DataLoss where they do not have the sha256 that glyd.json names, or
  // could not be read or decoded at all (then there may have been no bytes). What is returned ends
  // all work where it is not OK.
  virtual absl::Status End(size_t tensor, absl::Status verdict) = 0;
};

struct SaveJobOptions {
  bool check_only =
      false;  // packs are checked, nothing is decoded or hashed; tensors saved as they are not read
  int threads = 0;
};

// The number of tensors that a sink will hear of.
size_t CountTensors(const Save& save);
// Reads, checks, decodes and hashes all of a save. Cancelled where `progress` says so, else the
// sink's own failures.
absl::Status ReadSave(const Save& save, const SaveJobOptions& options, Progress& progress,
                      TensorSink& sink);

}  // namespace glyd

#endif  // GLYD_PACKER_VERIFY_SAVE_JOBS_H_
