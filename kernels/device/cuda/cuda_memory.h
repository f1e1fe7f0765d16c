#ifndef GLYD_KERNELS_DEVICE_CUDA_CUDA_MEMORY_H_
#define GLYD_KERNELS_DEVICE_CUDA_CUDA_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/cuda/gpu.h"
#include "kernels/device/device.h"

namespace glyd {

// A block of a GPU's memory: data() is a CUdeviceptr, which the CPU cannot follow. CUDA knows no
// seal: a sealed block is mapped to read in this process where it is of kFd, and no importer of
// ours maps one to write; kCudaIpc has no such mapping, and there it is a promise of this process.
class CudaMemory : public Memory {
 public:
  uint64_t bytes() const override { return bytes_; }
  uint8_t* data() const override { return reinterpret_cast<uint8_t*>(at_); }
  cu::DevicePtr at() const { return at_; }
  const cu::Gpu& gpu() const { return *gpu_; }
  bool writable() const { return writable_; }
  // Called before the block goes, which copies to it may not outlive.
  void OnEnd(std::function<void(const CudaMemory*)> f) { on_end_ = std::move(f); }

 protected:
  CudaMemory(std::shared_ptr<const cu::Gpu> gpu, uint64_t bytes, bool writable)
      : gpu_(std::move(gpu)), bytes_(bytes), writable_(writable) {}
  // Of every destructor, first.
  void End() {
    if (on_end_) on_end_(this);
  }
  const std::shared_ptr<const cu::Gpu> gpu_;
  const uint64_t bytes_;
  cu::DevicePtr at_ = 0;
  std::atomic<bool> writable_;

 private:
  std::function<void(const CudaMemory*)> on_end_;
};

// `bytes` is a multiple of kAllocationAlign. Not zeroed.
absl::StatusOr<std::unique_ptr<CudaMemory>> AllocateCuda(std::shared_ptr<const cu::Gpu> gpu,
                                                         Transport transport, uint64_t bytes);
// By a descriptor: mapped with `access` alone. By a handle: opened once in this process however
// often it is imported, and closed with the last; FailedPrecondition where this process exported
// it, which no driver lets it open.
absl::StatusOr<std::unique_ptr<CudaMemory>> ImportCuda(std::shared_ptr<const cu::Gpu> gpu,
                                                       ExportedMemory exported, Access access);

}  // namespace glyd

#endif  // GLYD_KERNELS_DEVICE_CUDA_CUDA_MEMORY_H_
