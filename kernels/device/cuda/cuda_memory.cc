#include "kernels/device/cuda/cuda_memory.h"

#include <fcntl.h>

#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

using cu::DevicePtr;
using cu::Driver;
using Handle = std::array<uint8_t, 64>;

absl::Status NotOwn() {
  return absl::FailedPreconditionError("sealing memory: only the process that allocated it can");
}

// --- by descriptor ---

class FdMemory : public CudaMemory {
 public:
  FdMemory(std::shared_ptr<const cu::Gpu> gpu, uint64_t bytes, cu::MemHandle handle, bool own,
           bool writable)
      : CudaMemory(std::move(gpu), bytes, writable), handle_(handle), own_(own) {}
  ~FdMemory() override {
    End();
    const Driver& cu = gpu_->driver();
    if (mapped_) cu.MemUnmap(at_, bytes_);
    if (at_ != 0) cu.MemAddressFree(at_, bytes_);
    if (held_) cu.MemRelease(handle_);
  }

  // Once, before anything else.
  absl::Status Map() {
    const Driver& cu = gpu_->driver();
    const std::string what = absl::StrCat(gpu_->name(), ": mapping ", bytes_, " bytes");
    GLYD_CU(MemAddressReserve(&at_, bytes_, kAllocationAlign, 0, 0), what);
    GLYD_CU(MemMap(at_, bytes_, 0, handle_, 0), what);
    mapped_ = true;
    GLYD_RETURN_IF_ERROR(SetAccess(writable_ ? cu::kAccessReadWrite : cu::kAccessRead));
    if (own_) return absl::OkStatus();
    // The mapping holds the memory.
    held_ = false;
    GLYD_CU(MemRelease(handle_), what);
    return absl::OkStatus();
  }

  absl::Status Seal() override {
    if (!own_) return NotOwn();
    GLYD_RETURN_IF_ERROR(SetAccess(cu::kAccessRead));
    writable_ = false;
    return absl::OkStatus();
  }

  absl::StatusOr<ExportedMemory> Export() const override {
    if (!own_) return absl::FailedPreconditionError("exporting memory: it is another process's");
    const Driver& cu = gpu_->driver();
    int fd = -1;
    GLYD_CU(MemExportToShareableHandle(&fd, handle_, cu::kHandleTypePosixFd, 0),
            absl::StrCat(gpu_->name(), ": exporting ", bytes_, " bytes"));
    ExportedMemory out;
    out.fd.reset(fd);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    out.bytes = bytes_;
    return out;
  }

 private:
  absl::Status SetAccess(int flags) {
    const Driver& cu = gpu_->driver();
    const cu::MemAccessDesc access = {{cu::kLocationTypeDevice, gpu_->ordinal()}, flags};
    GLYD_CU(MemSetAccess(at_, bytes_, &access, 1),
            absl::StrCat(gpu_->name(), ": access to ", bytes_, " bytes"));
    return absl::OkStatus();
  }

  const cu::MemHandle handle_;
  const bool own_;
  bool held_ = true, mapped_ = false;
};

// --- by handle ---

// What this process has opened and exported, by handle.
struct Handles {
  absl::Mutex mu;
  struct Opened {
    DevicePtr at = 0;
    int count = 0;
  };
  std::map<Handle, Opened> opened ABSL_GUARDED_BY(mu);
  std::set<Handle> exported ABSL_GUARDED_BY(mu);
};
Handles& AllHandles() {
  static auto* all = new Handles;
  return *all;
}

class IpcOwner : public CudaMemory {
 public:
  IpcOwner(std::shared_ptr<const cu::Gpu> gpu, uint64_t bytes)
      : CudaMemory(std::move(gpu), bytes, true) {}
  ~IpcOwner() override {
    End();
    if (exported_) {
      absl::MutexLock lock(&AllHandles().mu);
      AllHandles().exported.erase(handle_);
    }
    const cu::ScopedContext current(gpu_->driver(), gpu_->context());
    if (at_ != 0) gpu_->driver().MemFree(at_);
  }
  absl::Status Create() {
    const Driver& cu = gpu_->driver();
    const cu::ScopedContext current(cu, gpu_->context());
    GLYD_RETURN_IF_ERROR(current.status());
    GLYD_CU(MemAlloc(&at_, bytes_), absl::StrCat(gpu_->name(), ": allocating ", bytes_, " bytes"));
    const std::string what = absl::StrCat(gpu_->name(), ": a CUDA IPC handle");
    cu::IpcMemHandle handle;
    GLYD_CU(IpcGetMemHandle(&handle, at_), what);
    std::memcpy(handle_.data(), handle.reserved, handle_.size());
    absl::MutexLock lock(&AllHandles().mu);
    AllHandles().exported.insert(handle_);
    exported_ = true;
    return absl::OkStatus();
  }
  absl::Status Seal() override {
    writable_ = false;
    return absl::OkStatus();
  }
  absl::StatusOr<ExportedMemory> Export() const override {
    ExportedMemory out;
    out.transport = Transport::kCudaIpc;
    out.handle = handle_;
    out.bytes = bytes_;
    return out;
  }

 private:
  Handle handle_ = {};
  bool exported_ = false;
};

class IpcImport : public CudaMemory {
 public:
  IpcImport(std::shared_ptr<const cu::Gpu> gpu, uint64_t bytes, bool writable, const Handle& handle)
      : CudaMemory(std::move(gpu), bytes, writable), handle_(handle) {}
  ~IpcImport() override {
    End();
    if (at_ == 0) return;
    Handles& all = AllHandles();
    absl::MutexLock lock(&all.mu);
    const auto it = all.opened.find(handle_);
    if (--it->second.count > 0) return;
    all.opened.erase(it);
    const cu::ScopedContext current(gpu_->driver(), gpu_->context());
    gpu_->driver().IpcCloseMemHandle(at_);
  }
  absl::Status Open() {
    const Driver& cu = gpu_->driver();
    Handles& all = AllHandles();
    absl::MutexLock lock(&all.mu);
    if (all.exported.count(handle_) > 0)
      return absl::FailedPreconditionError(
          "importing memory: this process allocated it, and CUDA opens a handle in other processes "
          "alone");
    const auto it = all.opened.find(handle_);
    if (it != all.opened.end()) {
      ++it->second.count;
      at_ = it->second.at;
      return absl::OkStatus();
    }
    const cu::ScopedContext current(cu, gpu_->context());
    GLYD_RETURN_IF_ERROR(current.status());
    cu::IpcMemHandle handle;
    std::memcpy(handle.reserved, handle_.data(), handle_.size());
    DevicePtr at = 0;
    GLYD_CU(IpcOpenMemHandle(&at, handle, cu::kIpcLazyEnablePeerAccess),
            absl::StrCat(gpu_->name(), ": opening a CUDA IPC handle of ", bytes_, " bytes"));
    size_t size = 0;
    DevicePtr base = 0;
    const absl::Status known =
        cu::ToStatus(cu.MemGetAddressRange(&base, &size, at),
                     absl::StrCat(gpu_->name(), ": the size of what a CUDA IPC handle opened"));
    if (!known.ok() || base != at || size < bytes_) {
      cu.IpcCloseMemHandle(at);
      if (!known.ok()) return known;
      return absl::InvalidArgumentError(
          absl::StrCat("importing memory: ", bytes_,
                       " bytes told, the CUDA IPC handle's allocation has ", size));
    }
    all.opened[handle_] = {at, 1};
    at_ = at;
    return absl::OkStatus();
  }
  absl::Status Seal() override { return NotOwn(); }
  absl::StatusOr<ExportedMemory> Export() const override {
    ExportedMemory out;
    out.transport = Transport::kCudaIpc;
    out.handle = handle_;
    out.bytes = bytes_;
    return out;
  }

 private:
  const Handle handle_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMemory>> AllocateCuda(std::shared_ptr<const cu::Gpu> gpu,
                                                         Transport transport, uint64_t bytes) {
  const Driver& cu = gpu->driver();
  if (transport == Transport::kCudaIpc) {
    auto memory = std::make_unique<IpcOwner>(gpu, bytes);
    GLYD_RETURN_IF_ERROR(memory->Create());
    return memory;
  }
  cu::MemAllocationProp how = {};
  how.type = cu::kAllocationTypePinned;
  how.requested_handle_types = cu::kHandleTypePosixFd;
  how.location = {cu::kLocationTypeDevice, gpu->ordinal()};
  cu::MemHandle handle = 0;
  GLYD_CU(MemCreate(&handle, bytes, &how, 0),
          absl::StrCat(gpu->name(), ": allocating ", bytes, " bytes"));
  auto memory = std::make_unique<FdMemory>(gpu, bytes, handle, /*own=*/true, /*writable=*/true);
  GLYD_RETURN_IF_ERROR(memory->Map());
  return memory;
}

absl::StatusOr<std::unique_ptr<CudaMemory>> ImportCuda(std::shared_ptr<const cu::Gpu> gpu,
                                                       ExportedMemory exported, Access access) {
  const Driver& cu = gpu->driver();
  const bool write = access == Access::kReadWrite;
  if (exported.bytes == 0 || exported.bytes % kAllocationAlign != 0)
    return absl::InvalidArgumentError(absl::StrCat("importing memory: ", exported.bytes,
                                                   " bytes told, a GPU's blocks are multiples of ",
                                                   kAllocationAlign));
  if (exported.transport == Transport::kCudaIpc) {
    auto memory = std::make_unique<IpcImport>(gpu, exported.bytes, write, exported.handle);
    GLYD_RETURN_IF_ERROR(memory->Open());
    return memory;
  }
  cu::MemHandle handle = 0;
  GLYD_CU(MemImportFromShareableHandle(
              &handle, reinterpret_cast<void*>(static_cast<intptr_t>(exported.fd.get())),
              cu::kHandleTypePosixFd),
          absl::StrCat(gpu->name(), ": importing a descriptor of ", exported.bytes, " bytes"));
  auto memory = std::make_unique<FdMemory>(gpu, exported.bytes, handle, /*own=*/false, write);
  GLYD_RETURN_IF_ERROR(memory->Map());
  return memory;
}

}  // namespace glyd
