#ifndef GLYD_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_
#define GLYD_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace glyd {

// GPU `ordinal` of those that this process sees. Starts the driver: a process that is to fork does
// it before. An error after which the GPU answers no more has reason DEVICE_LOST, here and in every
// later call: only a new process helps. Memory may outlive the device. `threads` are for what runs
// on the CPU.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal, int threads,
                                                         Transport transport);

}  // namespace glyd

#endif  // GLYD_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_
