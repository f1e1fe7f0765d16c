#ifndef GLYD_BASE_BYTES_H_
#define GLYD_BASE_BYTES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace glyd {

// Little-endian loads and stores at any alignment.
inline uint32_t LoadLe32(const void* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint64_t LoadLe64(const void* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void StoreLe64(void* p, uint64_t v) { std::memcpy(p, &v, sizeof v); }

// false where the result does not fit; then *out is not to be used.
[[nodiscard]] inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}
[[nodiscard]] inline bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// `to` is a power of two; `n` is at most 2^64 - to.
constexpr uint64_t AlignUp(uint64_t n, uint64_t to) { return (n + to - 1) & ~(to - 1); }

// "12.3 MB" (powers of 1000) for people.
std::string HumanBytes(uint64_t n);

// "12GiB", "500M", "1.5GB", "4096": bytes. KiB, MiB, GiB, TiB are powers of 1024; K, KB, M, MB, G,
// GB, T, TB powers of 1000. InvalidArgument for anything else, negative numbers and what passes
// 2^63.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// Bytes a program printed or a file named, made safe to print on one line of a terminal: control
// characters, quotes, backslashes and bytes that are not UTF-8 as escapes; cut to `max` bytes with
// "..." where longer.
std::string Printable(absl::string_view data, size_t max = 200);

bool IsUtf8(absl::string_view data);

// Lower-case hex.
std::string Hex(absl::Span<const uint8_t> bytes);

// [A-Za-z0-9._-]{1,128}, not starting with a dot: what a model may be called.
bool IsValidName(absl::string_view name);

}  // namespace glyd

#endif  // GLYD_BASE_BYTES_H_
