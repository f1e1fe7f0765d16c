#include "kernels/device/device.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace glyd {

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name, int threads) {
  if (name == "host") return CreateHostDevice(threads);
  return absl::NotFoundError(
      absl::StrCat("device \"", Printable(name), "\" is not there; this machine has: host"));
}

}  // namespace glyd
