#ifndef GLYD_PACKER_MODEL_FAMILY_SHAPES_H_
#define GLYD_PACKER_MODEL_FAMILY_SHAPES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "packer/model/config.h"
#include "packer/model/save.h"

namespace glyd {

// glyd.json has neither dtype nor shape of a tensor saved as it is, and its sha256 says nothing of
// them. Of a known family's save they are known: BF16 throughout, norms and biases of one
// dimension, matrices that have the hidden size where they must. DataLoss names the tensor that is
// otherwise; OK for any save that is not certainly a family's: --any keeps what it finds.
absl::Status CheckFamilyShapes(const Save& save, const ModelConfig& config,
                               absl::string_view shown);

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_FAMILY_SHAPES_H_
