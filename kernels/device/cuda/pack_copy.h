#ifndef GLYD_KERNELS_DEVICE_CUDA_PACK_COPY_H_
#define GLYD_KERNELS_DEVICE_CUDA_PACK_COPY_H_

#include <functional>

#include "absl/status/statusor.h"
#include "kernels/format/pack.h"

namespace glyd {

// Copies `bytes` at an address of a device to the CPU.
using ReadDevice = std::function<absl::Status(const void* from, void* to, uint64_t bytes)>;

// Rows [row0, row0 + rows), multiples of kStepRows within the pack, of a pack that has passed
// CheckPack and lies on a device: a pack of their own on the CPU.
absl::StatusOr<EncodedPack> CopyPackRows(const PackView& pack, uint64_t row0, uint64_t rows,
                                         const ReadDevice& read);

}  // namespace glyd

#endif  // GLYD_KERNELS_DEVICE_CUDA_PACK_COPY_H_
