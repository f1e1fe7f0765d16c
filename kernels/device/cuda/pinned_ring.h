#ifndef GLYD_KERNELS_DEVICE_CUDA_PINNED_RING_H_
#define GLYD_KERNELS_DEVICE_CUDA_PINNED_RING_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device/cuda/cuda_memory.h"

namespace glyd {

// The way of bytes to a GPU: pinned buffers, at most kBuffers of Device::kWindowBytes, made as they
// are needed, and two streams that copy them while others are filled. Thread-safe. Every call takes
// what its name in Device takes, already checked.
class PinnedRing {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedRing>> Create(std::shared_ptr<const cu::Gpu> gpu);
  ~PinnedRing();

  // Waits for a buffer where all are in use. A window that is not committed comes back with its
  // memory's end.
  absl::StatusOr<uint8_t*> Open(const CudaMemory& m, uint64_t offset, uint64_t bytes);
  absl::Status Commit(const CudaMemory& m, uint64_t offset, uint8_t* window, uint64_t bytes);
  // Waits for all copies, of whatever memory.
  absl::Status Finish();
  // From the GPU's address to the CPU, after every copy committed before it. Blocks.
  absl::Status Read(cu::DevicePtr from, void* to, uint64_t bytes);
  // To the GPU's address. Blocks.
  absl::Status Write(cu::DevicePtr to, const void* from, uint64_t bytes);
  // `m` is going: waits for its copies, takes its windows back.
  void Forget(const CudaMemory* m);

 private:
  static constexpr size_t kBuffers = 8;
  struct Buffer {
    uint8_t* data = nullptr;
    cu::Event copied = nullptr;
    enum { kFree, kOpen, kCopying } state = kFree;
    const CudaMemory* memory = nullptr;  // of a window that is open
    uint64_t offset = 0, bytes = 0;
  };

  explicit PinnedRing(std::shared_ptr<const cu::Gpu> gpu) : gpu_(std::move(gpu)) {}
  absl::Status Start();
  absl::StatusOr<Buffer*> NewBuffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AnyIdle() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const cu::Gpu> gpu_;
  cu::Stream streams_[2] = {};
  cu::Event before_read_ = nullptr;
  absl::Mutex mu_;
  std::list<Buffer> buffers_ ABSL_GUARDED_BY(mu_);  // those that copy: the oldest first
  size_t next_stream_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace glyd

#endif  // GLYD_KERNELS_DEVICE_CUDA_PINNED_RING_H_
