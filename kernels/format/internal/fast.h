#ifndef GLYD_KERNELS_FORMAT_INTERNAL_FAST_H_
#define GLYD_KERNELS_FORMAT_INTERNAL_FAST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/format/pack.h"
#include "kernels/host/kernels.h"

namespace glyd::internal {

// kernels/format/pack.h's functions by a given set of kernels: tests compare them all with the
// reference.
absl::Status EncodeWith(const HostKernels& kernels, const PackMeta& meta, const uint16_t* weights,
                        uint64_t stride, EncodedPack* out);
void DecodeStepsWith(const HostKernels& kernels, const PackView& pack, uint64_t step,
                     uint64_t count, uint16_t* out, uint64_t stride);
void DecodeRowsWith(const HostKernels& kernels, const PackView& pack, uint64_t row0, uint64_t rows,
                    uint16_t* out);

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_FORMAT_INTERNAL_FAST_H_
