#ifndef GLYD_PACKER_INTERNAL_EXTRAS_H_
#define GLYD_PACKER_INTERNAL_EXTRAS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dir.h"
#include "base/progress.h"
#include "packer/pack/staging.h"

namespace glyd {

// Whether a file of a model's directory goes with its weights: configuration and tokenizer
// (docs/format.md, "A saved model").
bool IsModelExtra(absl::string_view name);

// Those of a directory. Another directory of such a name is left out, with a note.
absl::StatusOr<std::vector<std::string>> ListModelExtras(const Dir& from, Progress& progress);
// Copies them, by content alone.
absl::Status CopyModelExtras(const Dir& from, const std::vector<std::string>& names, Staging& to);

// For Staging::Options::written: of a directory that is to be replaced, the weights that its index
// names (without one, model.safetensors), `extras` that come anew, and `others`. What else it holds
// of configuration and tokenizers is somebody's.
std::function<bool(absl::string_view)> ReplacedFiles(const Dir& parent, absl::string_view name,
                                                     std::vector<std::string> extras,
                                                     std::vector<std::string> others);

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_EXTRAS_H_
