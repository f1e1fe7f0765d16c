#ifndef GLYD_KERNELS_FORMAT_READ_TENSOR_H_
#define GLYD_KERNELS_FORMAT_READ_TENSOR_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/format/pack.h"

namespace glyd {

// A tensor of the source within a pack: rows [row0, row0 + rows) of W, multiples of 64 within it.
// With `transposed_experts` it is that many matrices of W stacked, each held by the source as [in,
// out].
struct PackedTensor {
  uint64_t row0 = 0, rows = 0;
  uint64_t transposed_experts = 0;  // 0: rows as they are
};

// DecodeRows of the pack, wherever it lies.
using RowDecoder = std::function<absl::Status(uint64_t row0, uint64_t rows, uint16_t* out)>;

// Gives `sink` the tensor's bf16 bytes as the source holds them, in order, in pieces: about 2 MiB
// of rows, which stay in a core's cache, or one expert's matrix. Fails as `decode` does.
absl::Status ReadPackedTensor(uint64_t cols, const PackedTensor& tensor, const RowDecoder& decode,
                              const std::function<void(absl::Span<const uint8_t>)>& sink);

}  // namespace glyd

#endif  // GLYD_KERNELS_FORMAT_READ_TENSOR_H_
