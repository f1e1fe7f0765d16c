#ifndef GLYD_PACKER_INTERNAL_LOOKS_LIKE_H_
#define GLYD_PACKER_INTERNAL_LOOKS_LIKE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace glyd {

// What is often found where safetensors or JSON should be, by its first bytes: "an HTML page", "a
// Git LFS pointer", "a GGUF file", "a zip archive ..."; "" for anything else. A safetensors file's
// first bytes are a number and may be any of them: ask only where they cannot be one.
absl::string_view LooksLike(absl::string_view head);
// Of an open file. "" where it cannot be read.
absl::string_view LooksLike(int fd);

// The whole of an open JSON file. ResourceExhausted past `max_bytes`; DataLoss where it is plainly
// something else.
absl::StatusOr<std::string> ReadJson(int fd, uint64_t max_bytes, absl::string_view shown);

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_LOOKS_LIKE_H_
