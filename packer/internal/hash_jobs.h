#ifndef GLYD_PACKER_INTERNAL_HASH_JOBS_H_
#define GLYD_PACKER_INTERNAL_HASH_JOBS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"
#include "packer/internal/scratch.h"

namespace glyd {

// Bytes that one piece of work holds at a time, about: read, hashed, packed and handed on while a
// core's cache has them.
inline constexpr uint64_t kPieceBytes = 768 << 10;

// Memory that a job finds and leaves for the next one.
struct JobMemory {
  Scratch bytes, data, side, base, turned;
  EncodedPack pack;

  // Keeps of each no more than any job takes, or than `most` where that is more.
  void Trim(uint64_t most = 0);
};

// Work on tensors whose bytes are hashed on the way: read or decoded piece by piece, hashed, and
// then used.
class HashJob {
 public:
  virtual ~HashJob() = default;

  struct Piece {
    absl::Span<const uint8_t> bytes;
    bool ends_tensor = false;
    bool ends_job = false;  // a tensor that is not ended then is given up
  };
  // The next bytes; valid until the call of Next after this one.
  virtual absl::StatusOr<Piece> Next() = 0;
  // After they were hashed.
  virtual absl::Status Use(const Piece& /*piece*/) { return absl::OkStatus(); }
  // After the Use of a tensor's last piece.
  virtual absl::Status EndTensor(const Digest& digest) = 0;
};

// Jobs 0 to n-1.
struct HashJobs {
  size_t n = 0;
  std::function<std::unique_ptr<HashJob>(size_t i, JobMemory& memory)> make;
  std::function<uint64_t(size_t i)> need;     // of memory, kLaneBytes at least
  std::function<std::string(size_t i)> name;  // for messages: the tensor
};

// Runs jobs, in rising order, on several threads, within the budget of JobQueue. Each thread has
// two at hand where they fit, so that their hashes are computed side by side, which is faster. Ends
// at the first failure, or with Cancelled, like ParallelFor; ResourceExhausted, with the tensor and
// the bytes, where a job's memory cannot be had.
absl::Status RunHashJobs(const HashJobs& jobs, int threads, Progress& progress);

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_HASH_JOBS_H_
