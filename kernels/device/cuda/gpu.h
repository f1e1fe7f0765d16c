#ifndef GLYD_KERNELS_DEVICE_CUDA_GPU_H_
#define GLYD_KERNELS_DEVICE_CUDA_GPU_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/cuda/driver.h"

namespace glyd::cu {

// A GPU that this process may use, with its primary context held for as long as this lives. What
// lies in the context shares it. Thread-safe.
class Gpu {
 public:
  // NotFound where the process sees no GPU of that number, with what it sees.
  static absl::StatusOr<std::shared_ptr<const Gpu>> Open(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const { return driver_; }
  Context context() const { return context_; }
  int ordinal() const { return ordinal_; }
  std::string name() const;  // "cuda:0"
  absl::StatusOr<int> Attribute(DeviceAttribute attribute) const;

 private:
  Gpu(const Driver& driver, int ordinal, Context context)
      : driver_(driver), ordinal_(ordinal), context_(context) {}
  const Driver& driver_;
  const int ordinal_;
  const Context context_;
};

}  // namespace glyd::cu

#endif  // GLYD_KERNELS_DEVICE_CUDA_GPU_H_
