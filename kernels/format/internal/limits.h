#ifndef GLYD_KERNELS_FORMAT_INTERNAL_LIMITS_H_
#define GLYD_KERNELS_FORMAT_INTERNAL_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/format/pack.h"

namespace glyd::internal {

// OutOfRange, with the matrix and both numbers, where an encoder's output passes what int32 bases
// can name: `bytes` of all of `blocks`, `count` exceptions.
absl::Status CheckBlocksBytes(const PackMeta& meta, uint64_t bytes);
absl::Status CheckExceptions(const PackMeta& meta, uint64_t count);

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_FORMAT_INTERNAL_LIMITS_H_
