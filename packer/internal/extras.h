#ifndef GLYD_PACKER_INTERNAL_EXTRAS_H_
#define GLYD_PACKER_INTERNAL_EXTRAS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/dir.h"
#include "base/progress.h"
#include "packer/pack/staging.h"

namespace glyd {

// Whether a file of a model's directory goes with its weights: configuration and tokenizer
// (docs/format.md, "A saved model").
bool IsModelExtra(absl::string_view name);

// Copies them, by content alone. A directory of such a name is left out, with a note.
absl::Status CopyModelExtras(const Dir& from, Staging& to, Progress& progress);

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_EXTRAS_H_
