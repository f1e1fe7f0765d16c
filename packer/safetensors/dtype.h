#ifndef GLYD_PACKER_SAFETENSORS_DTYPE_H_
#define GLYD_PACKER_SAFETENSORS_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace glyd {

// An element type of safetensors.
struct DtypeInfo {
  absl::string_view name;
  uint32_t bits = 0;
  uint32_t order = 0;  // files hold their tensors in this order, then by name
};

// nullptr where there is none of this name; names are matched byte by byte ("bf16" is none).
const DtypeInfo* FindDtype(absl::string_view name);

}  // namespace glyd

#endif  // GLYD_PACKER_SAFETENSORS_DTYPE_H_
