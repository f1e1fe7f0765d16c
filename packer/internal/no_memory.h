#ifndef GLYD_PACKER_INTERNAL_NO_MEMORY_H_
#define GLYD_PACKER_INTERNAL_NO_MEMORY_H_

#include <cstdint>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/reason.h"

namespace glyd {

// Memory that could not be had, where the number of bytes is known.
class NoMemory : public std::bad_alloc {
 public:
  explicit NoMemory(uint64_t bytes) : bytes_(bytes) {}
  const char* what() const noexcept override { return "no memory"; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
};

// f(), whose failure to allocate becomes a ResourceExhausted (reason NO_MEMORY) that begins with
// what `name()` says: which tensor it was for. `need`: the bytes told where the failure knows none.
template <typename Name, typename F>
auto WithoutBadAlloc(Name name, uint64_t need, F f) -> decltype(f()) {
  const auto status = [&](uint64_t bytes) {
    std::string text = absl::StrCat(name(), ": memory could not be had");
    if (bytes != 0) absl::StrAppend(&text, ", ", bytes, " bytes needed");
    return WithReason(absl::ResourceExhaustedError(text), kReasonNoMemory);
  };
  try {
    return f();
  } catch (const NoMemory& e) {
    return status(e.bytes());
  } catch (const std::bad_alloc&) {
    return status(need);
  }
}

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_NO_MEMORY_H_
