#ifndef GLYD_PACKER_SAFETENSORS_HEADER_H_
#define GLYD_PACKER_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace glyd {

// A tensor in one of the files of a checkpoint or a save.
struct StoredTensor {
  std::string name;   // data from the file: print it with Printable, never use it as a path
  std::string dtype;  // as safetensors names it: "BF16"
  std::vector<uint64_t> shape;
  size_t file = 0;      // index into the owner's files
  uint64_t offset = 0;  // from the file's start
  uint64_t bytes = 0;
};

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Bytes that a tensor of this dtype and shape takes; InvalidArgument for an unknown dtype, a
// product that does not fit 64 bits, or a number of bits that is no number of bytes.
absl::StatusOr<uint64_t> TensorBytes(absl::string_view dtype, const std::vector<uint64_t>& shape);

// The tensors that a safetensors header (the JSON text alone) describes, in the order of their
// data. They are known to lie back to back from `data_start` to `file_bytes`, each as long as its
// dtype and shape say, no two of one name. DataLoss otherwise; `shown` names the file in messages.
absl::StatusOr<std::vector<StoredTensor>> ParseHeader(std::string json, uint64_t data_start,
                                                      uint64_t file_bytes, absl::string_view shown);

// Reads and parses the header of an open file. What is no safetensors file is told by what it looks
// like (an HTML page, a Git LFS pointer); a header past kMaxHeaderBytes or the file's end is
// refused before it is read.
absl::StatusOr<std::vector<StoredTensor>> ReadHeader(int fd, uint64_t file_bytes,
                                                     absl::string_view shown);

}  // namespace glyd

#endif  // GLYD_PACKER_SAFETENSORS_HEADER_H_
