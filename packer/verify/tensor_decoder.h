#ifndef GLYD_PACKER_VERIFY_TENSOR_DECODER_H_
#define GLYD_PACKER_VERIFY_TENSOR_DECODER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "packer/internal/parallel.h"
#include "packer/model/save.h"

namespace glyd {

// One member of a checked pack as the source holds it, in pieces that fit a core's cache: `f(bytes,
// offset in the tensor)`, the offsets rising without a gap. `scratch` is used throughout. Stops at
// f's first failure.
absl::Status DecodeMember(
    const SavedPack& pack, const PackView& view, size_t member, Scratch& scratch,
    const std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>& f);

// The bytes of a tensor saved as it is, in the same way.
absl::Status StreamRaw(const Save& save, const SavedTensor& tensor, Scratch& scratch,
                       const std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>& f);

}  // namespace glyd

#endif  // GLYD_PACKER_VERIFY_TENSOR_DECODER_H_
