#ifndef GLYD_PACKER_SAFETENSORS_TENSOR_READER_H_
#define GLYD_PACKER_SAFETENSORS_TENSOR_READER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "packer/safetensors/checkpoint.h"

namespace glyd {

// Reads tensors of open files, and leaves the page cache as it found it: a file that was not in
// it is dropped behind the reader. Thread-safe.
class TensorReader {
 public:
  // Borrows the files.
  explicit TensorReader(absl::Span<const TensorFile> files);

  // `bytes` of a tensor, from `at` on.
  absl::Status Read(const StoredTensor& tensor, uint64_t at, uint64_t bytes, void* to) const;
  // After the last Read of a tensor.
  void Drop(const StoredTensor& tensor) const;

 private:
  const absl::Span<const TensorFile> files_;
  std::vector<bool> cold_;  // by file: was not in the page cache
};

}  // namespace glyd

#endif  // GLYD_PACKER_SAFETENSORS_TENSOR_READER_H_
