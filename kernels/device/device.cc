#include "kernels/device/device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "kernels/device/cuda/cuda_device.h"

namespace glyd {

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name, int threads,
                                                     Transport transport) {
  if (name == "host") {
    if (transport == Transport::kFd) return CreateHostDevice(threads);
    return absl::InvalidArgumentError("device \"host\" lends by descriptor alone, not by CUDA IPC");
  }
  int ordinal;
  absl::string_view number = name;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &ordinal) &&
      number == absl::StrCat(ordinal))
    return CreateCudaDevice(ordinal, threads, transport);
  return absl::NotFoundError(absl::StrCat(
      "device \"", Printable(name), "\" is not there: a device is \"host\" or a GPU, \"cuda:0\""));
}

}  // namespace glyd
