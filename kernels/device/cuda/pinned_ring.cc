#include "kernels/device/cuda/pinned_ring.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace glyd {

absl::StatusOr<std::unique_ptr<PinnedRing>> PinnedRing::Create(std::shared_ptr<const cu::Gpu> gpu) {
  auto ring = std::unique_ptr<PinnedRing>(new PinnedRing(std::move(gpu)));
  GLYD_RETURN_IF_ERROR(ring->Start());
  return ring;
}

absl::Status PinnedRing::Start() {
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  for (cu::Stream& s : streams_)
    GLYD_CU(StreamCreate(&s, cu::kStreamNonBlocking), absl::StrCat(gpu_->name(), ": a stream"));
  GLYD_CU(EventCreate(&before_read_, cu::kEventDisableTiming),
          absl::StrCat(gpu_->name(), ": an event"));
  return absl::OkStatus();
}

PinnedRing::~PinnedRing() {
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  for (const cu::Stream s : streams_)
    if (s != nullptr) cu.StreamSynchronize(s), cu.StreamDestroy(s);
  if (before_read_ != nullptr) cu.EventDestroy(before_read_);
  absl::MutexLock lock(&mu_);
  for (const Buffer& b : buffers_) {
    if (b.copied != nullptr) cu.EventDestroy(b.copied);
    cu.MemFreeHost(b.data);
  }
}

bool PinnedRing::AnyIdle() const {
  return buffers_.size() < kBuffers ||
         std::any_of(buffers_.begin(), buffers_.end(),
                     [](const Buffer& b) { return b.state != Buffer::kOpen; });
}

absl::StatusOr<PinnedRing::Buffer*> PinnedRing::NewBuffer() {
  const cu::Driver& cu = gpu_->driver();
  void* data = nullptr;
  GLYD_CU(MemHostAlloc(&data, Device::kWindowBytes, cu::kHostAllocPortable),
          absl::StrCat(gpu_->name(), ": ", Device::kWindowBytes, " bytes of pinned memory"));
  buffers_.emplace_front();
  buffers_.front().data = static_cast<uint8_t*>(data);
  GLYD_CU(EventCreate(&buffers_.front().copied, cu::kEventDisableTiming),
          absl::StrCat(gpu_->name(), ": an event"));
  return &buffers_.front();
}

absl::StatusOr<uint8_t*> PinnedRing::Open(const CudaMemory& m, uint64_t offset, uint64_t bytes) {
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &PinnedRing::AnyIdle));
  Buffer* b = nullptr;
  for (Buffer& have : buffers_)
    if (b == nullptr && have.state == Buffer::kFree) b = &have;
  if (b == nullptr && buffers_.size() < kBuffers) {
    GLYD_ASSIGN_OR_RETURN(b, NewBuffer());
  }
  const auto take = [&](Buffer& from) {
    from.state = Buffer::kOpen;
    from.memory = &m;
    from.offset = offset;
    from.bytes = bytes;
  };
  if (b != nullptr) return take(*b), b->data;
  // The one that has been copying longest. Its wait is without the lock, so it is nobody else's.
  b = &*std::find_if(buffers_.begin(), buffers_.end(),
                     [](const Buffer& have) { return have.state == Buffer::kCopying; });
  take(*b);
  mu_.Unlock();
  const cu::Result waited = cu.EventSynchronize(b->copied);
  mu_.Lock();
  if (waited != cu::kSuccess) b->state = Buffer::kFree;
  GLYD_RETURN_IF_ERROR(cu::ToStatus(waited, absl::StrCat(gpu_->name(), ": copying to it")));
  return b->data;
}

absl::Status PinnedRing::Commit(const CudaMemory& m, uint64_t offset, uint8_t* window,
                                uint64_t bytes) {
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  absl::MutexLock lock(&mu_);
  const auto b = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& have) {
    return have.state == Buffer::kOpen && have.data == window;
  });
  if (b == buffers_.end() || b->memory != &m || b->offset != offset || bytes > b->bytes)
    return absl::InvalidArgumentError(
        absl::StrCat("committing a window at ", offset, " that was not opened there"));
  b->memory = nullptr;
  b->state = Buffer::kFree;
  if (bytes == 0) return absl::OkStatus();
  const std::string what = absl::StrCat(gpu_->name(), ": copying ", bytes, " bytes to it");
  const cu::Stream stream = streams_[next_stream_++ % 2];
  GLYD_CU(MemcpyHtoDAsync(m.at() + offset, window, bytes, stream), what);
  b->state = Buffer::kCopying;
  buffers_.splice(buffers_.end(), buffers_, b);
  GLYD_CU(EventRecord(b->copied, stream), what);
  return absl::OkStatus();
}

absl::Status PinnedRing::Finish() {
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  for (const cu::Stream s : streams_)
    GLYD_CU(StreamSynchronize(s), absl::StrCat(gpu_->name(), ": copying to it"));
  return absl::OkStatus();
}

absl::Status PinnedRing::Read(cu::DevicePtr from, void* to, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  const std::string what = absl::StrCat(gpu_->name(), ": copying ", bytes, " bytes from it");
  {
    absl::MutexLock lock(&mu_);  // the event is one
    GLYD_CU(EventRecord(before_read_, streams_[1]), what);
    GLYD_CU(StreamWaitEvent(streams_[0], before_read_, 0), what);
  }
  GLYD_CU(MemcpyDtoHAsync(to, from, bytes, streams_[0]), what);
  GLYD_CU(StreamSynchronize(streams_[0]), what);
  return absl::OkStatus();
}

absl::Status PinnedRing::Write(cu::DevicePtr to, const void* from, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const cu::Driver& cu = gpu_->driver();
  const cu::ScopedContext current(cu, gpu_->context());
  GLYD_RETURN_IF_ERROR(current.status());
  const std::string what = absl::StrCat(gpu_->name(), ": copying ", bytes, " bytes to it");
  GLYD_CU(MemcpyHtoDAsync(to, from, bytes, streams_[0]), what);
  GLYD_CU(StreamSynchronize(streams_[0]), what);
  return absl::OkStatus();
}

void PinnedRing::Forget(const CudaMemory* m) {
  (void)Finish();  // of a GPU that is lost nothing copies any more
  absl::MutexLock lock(&mu_);
  for (Buffer& b : buffers_)
    if (b.state == Buffer::kOpen && b.memory == m) {
      b.state = Buffer::kFree;
      b.memory = nullptr;
    }
}

}  // namespace glyd
