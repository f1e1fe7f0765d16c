#ifndef GLYD_PACKER_PACK_SOURCE_READER_H_
#define GLYD_PACKER_PACK_SOURCE_READER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"
#include "packer/safetensors/checkpoint.h"

namespace glyd {

// Reads the tensors of a checkpoint in pieces that fit a core's cache, so that hashing and counting
// find the bytes there. What was not in the page cache before is dropped from it behind the reader.
// Thread-safe.
class SourceReader {
 public:
  explicit SourceReader(const Checkpoint& checkpoint);

  // Where a tensor goes and what is made of it on the way.
  struct Request {
    const StoredTensor* tensor = nullptr;
    uint8_t* to = nullptr;                   // tensor->bytes of them
    Digest* sha256 = nullptr;                // nullptr: not hashed
    ExponentHistogram* histogram = nullptr;  // nullptr: not counted
  };
  // Whole tensors, side by side.
  absl::Status Read(absl::Span<const Request> requests) const;

  // One tensor, piece by piece; `f(bytes, offset in the tensor)`.
  using Piece = std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>;
  absl::Status Stream(const StoredTensor& tensor, uint8_t* scratch, const Piece& f) const;

  static constexpr uint64_t kPieceBytes = 256 << 10;  // what Stream needs at `scratch`

  // Whether a file was not in the page cache when the reader was made.
  bool cold(size_t file) const { return cold_[file]; }

 private:
  absl::Status ReadPiece(const StoredTensor& tensor, uint64_t at, uint64_t bytes,
                         uint8_t* to) const;
  void Drop(const StoredTensor& tensor) const;

  const Checkpoint& checkpoint_;
  std::vector<bool> cold_;  // by file
};

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_SOURCE_READER_H_
