#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/fakecuda/fake.h"

using namespace fakecuda;

namespace {

struct IpcHandle {
  char magic[8];
  pid_t pid;
  int fd;
  uint64_t start, inode, bytes;
  int device;
};
static_assert(sizeof(IpcHandle) <= sizeof(IpcMemHandle));
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};

uint64_t RoundUp(uint64_t n) { return (n + kPage - 1) / kPage * kPage; }

int NewMemory(int device, uint64_t bytes) {
  const uint64_t total = std::strtoull(Env("FAKECUDA_MEMORY", "1073741824").c_str(), nullptr, 10);
  const uint64_t used = BytesInUse(device);
  if (bytes > total || used > total - bytes) return -1;
  const int fd = ::memfd_create((MemoryName() + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

uint64_t Reserve(uint64_t bytes) {
  void* p =
      ::mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  const uint64_t start = reinterpret_cast<uint64_t>(p), at = RoundUp(start);
  if (at > start) ::munmap(p, at - start);
  if (start + kPage > at) ::munmap(reinterpret_cast<void*>(at + bytes), start + kPage - at);
  return at;
}

bool MapAt(uint64_t at, Mapping& m) {
  m.shadow =
      static_cast<uint8_t*>(::mmap(nullptr, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0));
  return m.shadow != MAP_FAILED && ::mmap(reinterpret_cast<void*>(at), m.bytes, PROT_NONE,
                                          MAP_SHARED | MAP_FIXED, m.fd, 0) != MAP_FAILED;
}

void Unmap(uint64_t at, const Mapping& m, bool keep_addresses) {
  ::munmap(m.shadow, m.bytes);
  if (keep_addresses)
    ::mmap(reinterpret_cast<void*>(at), m.bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else
    ::munmap(reinterpret_cast<void*>(at), m.bytes);
  ::close(m.fd);
}

bool IsPinned(const void* p, uint64_t bytes) {
  const uint64_t at = reinterpret_cast<uint64_t>(p);
  auto it = S().pinned.upper_bound(at);
  if (it == S().pinned.begin()) return false;
  --it;
  return at - it->first <= it->second && bytes <= it->second - (at - it->first);
}

// [at, at + bytes) for a copy; the double's own pointer, or why not.
Result Reach(DevicePtr at, uint64_t bytes, bool write, uint8_t** out) {
  uint64_t base;
  Mapping* m = Find(at, bytes, &base);
  if (m == nullptr) {
    Log("broken rule: a copy outside of mapped memory");
    return kInvalidValue;
  }
  if (!OwnerLives(*m)) return kIllegalAddress;
  if (m->access == 0 || (write && m->access != kAccessReadWrite)) {
    Log(write ? "broken rule: a copy into memory mapped to read"
              : "broken rule: a copy from memory mapped without access");
    return kInvalidValue;
  }
  *out = m->shadow + (at - base);
  return kSuccess;
}

bool Settled(VmmHandle& h) {
  if (h.held || h.mappings > 0) return false;
  ::close(h.fd);
  return true;
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  FAKE_ENTER("cuMemGetInfo", true);
  *total = std::strtoull(Env("FAKECUDA_MEMORY", "1073741824").c_str(), nullptr, 10);
  const uint64_t used = BytesInUse(Current()->device);
  *free = used > *total ? 0 : *total - used;
  return kSuccess;
}

Result cuMemAlloc_v2(DevicePtr* out, size_t bytes) {
  FAKE_ENTER("cuMemAlloc", true);
  if (bytes == 0) return kInvalidValue;
  if (bytes > uint64_t{1} << 46) return kOutOfMemory;
  Mapping m;
  m.bytes = RoundUp(bytes);
  m.device = Current()->device;
  m.fd = NewMemory(m.device, m.bytes);
  if (m.fd < 0) return kOutOfMemory;
  m.access = kAccessReadWrite;
  struct stat st;
  ::fstat(m.fd, &st);
  m.inode = st.st_ino;
  const uint64_t at = Reserve(m.bytes);
  if (at == 0 || !MapAt(at, m)) return kOutOfMemory;
  std::memset(m.shadow, 0xCD, m.bytes);
  S().mappings[at] = m;
  *out = at;
  return kSuccess;
}

Result cuMemFree_v2(DevicePtr at) {
  FAKE_ENTER("cuMemFree", true);
  if (at == 0) return kSuccess;
  const auto it = S().mappings.find(at);
  if (it == S().mappings.end() || it->second.kind != Mapping::kAlloc) {
    Log("broken rule: cuMemFree of what cuMemAlloc did not give");
    return kInvalidValue;
  }
  RunAll();
  Mapping& m = it->second;
  if (OtherHolders(m.inode) > 0) {
    Log("broken rule: cuMemFree while another process has the memory open");
    std::memset(m.shadow, 0xA5, m.bytes);
  }
  Unmap(at, m, false);
  S().mappings.erase(it);
  return kSuccess;
}

Result cuMemGetAddressRange_v2(DevicePtr* base, size_t* bytes, DevicePtr at) {
  FAKE_ENTER("cuMemGetAddressRange", true);
  uint64_t b;
  const Mapping* m = Find(at, 1, &b);
  if (m == nullptr) return kNotFound;
  if (base != nullptr) *base = b;
  if (bytes != nullptr) *bytes = m->bytes;
  return kSuccess;
}

Result cuPointerGetAttribute(void* out, PointerAttribute attribute, DevicePtr at) {
  FAKE_ENTER("cuPointerGetAttribute", true);
  uint64_t base;
  const Mapping* m = Find(at, 1, &base);
  if (m == nullptr) return kInvalidValue;
  if (attribute == kPointerMemoryType) {
    *static_cast<unsigned*>(out) = kMemoryTypeDevice;
  } else if (attribute == kPointerContext) {
    *static_cast<Context*>(out) = m->kind == Mapping::kVmm ? nullptr : &S().contexts[m->device];
  } else if (attribute == kPointerDeviceOrdinal) {
    for (size_t i = 0; i < S().visible.size(); ++i)
      if (S().visible[i] == m->device) *static_cast<int*>(out) = static_cast<int>(i);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

Result cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  FAKE_ENTER("cuMemHostAlloc", true);
  if (bytes == 0) return kInvalidValue;
  void* p =
      ::mmap(nullptr, RoundUp(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return kOutOfMemory;
  S().pinned[reinterpret_cast<uint64_t>(p)] = bytes;
  *out = p;
  return kSuccess;
}

Result cuMemFreeHost(void* p) {
  FAKE_ENTER("cuMemFreeHost", true);
  const auto it = S().pinned.find(reinterpret_cast<uint64_t>(p));
  if (it == S().pinned.end()) return kInvalidValue;
  RunAll();
  ::munmap(p, RoundUp(it->second));
  S().pinned.erase(it);
  return kSuccess;
}

Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes, Stream stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync", true);
  uint8_t* p;
  if (const Result r = Reach(to, bytes, true, &p); r != kSuccess) return r;
  if (IsPinned(from, bytes))
    return Enqueue(stream, [=] {
      uint8_t* q;
      if (Reach(to, bytes, true, &q) != kSuccess) return kIllegalAddress;
      std::memcpy(q, from, bytes);
      return kSuccess;
    });
  // Pageable memory is read before the call returns.
  auto copy = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
  return Enqueue(stream, [=] {
    uint8_t* q;
    if (Reach(to, bytes, true, &q) != kSuccess) return kIllegalAddress;
    std::memcpy(q, copy->data(), bytes);
    return kSuccess;
  });
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync", true);
  uint8_t* p;
  if (const Result r = Reach(from, bytes, false, &p); r != kSuccess) return r;
  const bool wait = !IsPinned(to, bytes);
  const Result r = Enqueue(stream, [=] {
    uint8_t* q;
    if (Reach(from, bytes, false, &q) != kSuccess) return kIllegalAddress;
    std::memcpy(to, q, bytes);
    return kSuccess;
  });
  if (r != kSuccess || !wait) return r;
  CUstream_st* s = stream == nullptr ? &S().null_stream : stream;
  return RunUntil(s, s->queued);
}

Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  FAKE_ENTER("cuMemcpyDtoDAsync", true);
  uint8_t* p;
  if (const Result r = Reach(to, bytes, true, &p); r != kSuccess) return r;
  if (const Result r = Reach(from, bytes, false, &p); r != kSuccess) return r;
  return Enqueue(stream, [=] {
    uint8_t *q, *s;
    if (Reach(to, bytes, true, &q) != kSuccess || Reach(from, bytes, false, &s) != kSuccess)
      return kIllegalAddress;
    std::memmove(q, s, bytes);
    return kSuccess;
  });
}

Result cuMemsetD8Async(DevicePtr to, unsigned char byte, size_t bytes, Stream stream) {
  FAKE_ENTER("cuMemsetD8Async", true);
  uint8_t* p;
  if (const Result r = Reach(to, bytes, true, &p); r != kSuccess) return r;
  return Enqueue(stream, [=] {
    uint8_t* q;
    if (Reach(to, bytes, true, &q) != kSuccess) return kIllegalAddress;
    std::memset(q, byte, bytes);
    return kSuccess;
  });
}

// --- memory by handle: cuIpc ---

Result cuIpcGetMemHandle(IpcMemHandle* out, DevicePtr at) {
  FAKE_ENTER("cuIpcGetMemHandle", true);
  if (Lacks("ipc")) return kNotSupported;
  uint64_t base;
  const Mapping* m = Find(at, 1, &base);
  if (m == nullptr || m->kind != Mapping::kAlloc) {
    Log("broken rule: an IPC handle of what cuMemAlloc did not give");
    return kInvalidValue;
  }
  IpcHandle h = {};
  std::memcpy(h.magic, kMagic, 8);
  h.pid = ::getpid();
  h.fd = m->fd;
  h.start = StartTime(h.pid);
  h.inode = m->inode;
  h.bytes = m->bytes;
  h.device = m->device;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &h, sizeof h);
  return kSuccess;
}

Result cuIpcOpenMemHandle_v2(DevicePtr* out, IpcMemHandle handle, unsigned flags) {
  FAKE_ENTER("cuIpcOpenMemHandle", true);
  if (Lacks("ipc")) return kNotSupported;
  if (Lacks("ipc-open")) return kMapFailed;
  if (flags != kIpcLazyEnablePeerAccess) return kInvalidValue;
  IpcHandle h;
  std::memcpy(&h, &handle, sizeof h);
  if (std::memcmp(h.magic, kMagic, 8) != 0) return kInvalidHandle;
  if (h.pid == ::getpid()) {
    Log("broken rule: cuIpcOpenMemHandle in the exporting process");
    return kInvalidContext;
  }
  for (auto& [at, m] : S().mappings)
    if (m.kind == Mapping::kIpc && m.inode == h.inode) {
      if (Env("FAKECUDA_REOPEN") == "208") return kAlreadyMapped;
      ++m.opens;
      *out = at;
      return kSuccess;
    }
  if (h.device != Current()->device) {
    Log("broken rule: a handle of another GPU");
    return kInvalidDevice;
  }
  Mapping m;
  m.kind = Mapping::kIpc;
  m.bytes = h.bytes;
  m.device = h.device;
  m.inode = h.inode;
  m.owner = h.pid;
  m.owner_start = h.start;
  m.opens = 1;
  m.access = kAccessReadWrite;
  if (StartTime(h.pid) != h.start) return kInvalidHandle;
  m.fd = ::open(("/proc/" + std::to_string(h.pid) + "/fd/" + std::to_string(h.fd)).c_str(),
                O_RDWR | O_CLOEXEC);
  struct stat st;
  if (m.fd < 0 || ::fstat(m.fd, &st) != 0 || st.st_ino != h.inode) {
    if (m.fd >= 0) ::close(m.fd);
    Log("broken rule: cuIpcOpenMemHandle of memory that is gone");
    return kInvalidHandle;
  }
  const uint64_t at = Reserve(m.bytes);
  if (at == 0 || !MapAt(at, m)) return kMapFailed;
  S().mappings[at] = m;
  *out = at;
  return kSuccess;
}

Result cuIpcCloseMemHandle(DevicePtr at) {
  FAKE_ENTER("cuIpcCloseMemHandle", true);
  const auto it = S().mappings.find(at);
  if (it == S().mappings.end() || it->second.kind != Mapping::kIpc) return kInvalidValue;
  if (--it->second.opens > 0) return kSuccess;
  RunAll();
  Unmap(at, it->second, false);
  S().mappings.erase(it);
  return kSuccess;
}

// --- memory by descriptor: virtual memory management ---

Result cuMemGetAllocationGranularity(size_t* out, const MemAllocationProp* p, int) {
  FAKE_ENTER("cuMemGetAllocationGranularity", false);
  if (p->type != kAllocationTypePinned || p->location.type != kLocationTypeDevice)
    return kInvalidValue;
  *out = kPage;
  return kSuccess;
}

Result cuMemCreate(MemHandle* out, size_t bytes, const MemAllocationProp* p,
                   unsigned long long flags) {
  FAKE_ENTER("cuMemCreate", false);
  if (Lacks("vmm")) return kNotSupported;
  if (bytes == 0 || bytes % kPage != 0) {
    Log("broken rule: cuMemCreate of a size that is no multiple of the granularity");
    return kInvalidValue;
  }
  if (flags != 0 || p->type != kAllocationTypePinned || p->location.type != kLocationTypeDevice ||
      p->location.id < 0 || p->location.id >= static_cast<int>(S().visible.size()) ||
      (p->requested_handle_types & ~kHandleTypePosixFd) != 0)
    return kInvalidValue;
  if (bytes > uint64_t{1} << 46) return kOutOfMemory;
  VmmHandle h;
  h.bytes = bytes;
  h.device = S().visible[p->location.id];
  h.fd = NewMemory(h.device, bytes);
  if (h.fd < 0) return kOutOfMemory;
  void* all = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h.fd, 0);
  if (all == MAP_FAILED) return kOutOfMemory;
  std::memset(all, 0xCD, bytes);
  ::munmap(all, bytes);
  S().handles[*out = S().next_handle++] = h;
  return kSuccess;
}

Result cuMemRelease(MemHandle handle) {
  FAKE_ENTER("cuMemRelease", false);
  const auto it = S().handles.find(handle);
  if (it == S().handles.end() || !it->second.held) return kInvalidValue;
  it->second.held = false;
  if (Settled(it->second)) S().handles.erase(it);
  return kSuccess;
}

Result cuMemAddressReserve(DevicePtr* out, size_t bytes, size_t alignment, DevicePtr,
                           unsigned long long flags) {
  FAKE_ENTER("cuMemAddressReserve", false);
  if (bytes == 0 || bytes % kPage != 0 || alignment > kPage || flags != 0) return kInvalidValue;
  const uint64_t at = Reserve(bytes);
  if (at == 0) return kOutOfMemory;
  S().reservations[*out = at] = bytes;
  return kSuccess;
}

Result cuMemAddressFree(DevicePtr at, size_t bytes) {
  FAKE_ENTER("cuMemAddressFree", false);
  const auto it = S().reservations.find(at);
  uint64_t base;
  if (it == S().reservations.end() || it->second != bytes) return kInvalidValue;
  if (Find(at, 1, &base) != nullptr) {
    Log("broken rule: cuMemAddressFree of mapped addresses");
    return kInvalidValue;
  }
  ::munmap(reinterpret_cast<void*>(at), bytes);
  S().reservations.erase(it);
  return kSuccess;
}

Result cuMemMap(DevicePtr at, size_t bytes, size_t offset, MemHandle handle,
                unsigned long long flags) {
  FAKE_ENTER("cuMemMap", false);
  const auto h = S().handles.find(handle);
  if (h == S().handles.end() || !h->second.held || flags != 0 || offset != 0 ||
      bytes != h->second.bytes)
    return kInvalidValue;
  auto r = S().reservations.upper_bound(at);
  if (r == S().reservations.begin()) return kInvalidValue;
  --r;
  uint64_t base;
  if (at % kPage != 0 || at - r->first > r->second || bytes > r->second - (at - r->first) ||
      Find(at, 1, &base) != nullptr)
    return kInvalidValue;
  Mapping m;
  m.kind = Mapping::kVmm;
  m.bytes = bytes;
  m.device = h->second.device;
  m.fd = ::fcntl(h->second.fd, F_DUPFD_CLOEXEC, 0);
  m.handle = handle;
  if (m.fd < 0 || !MapAt(at, m)) return kMapFailed;
  ++h->second.mappings;
  S().mappings[at] = m;
  return kSuccess;
}

Result cuMemUnmap(DevicePtr at, size_t bytes) {
  FAKE_ENTER("cuMemUnmap", false);
  const auto it = S().mappings.find(at);
  if (it == S().mappings.end() || it->second.kind != Mapping::kVmm || it->second.bytes != bytes)
    return kInvalidValue;
  RunAll();
  Unmap(at, it->second, true);
  const auto h = S().handles.find(it->second.handle);
  --h->second.mappings;
  if (Settled(h->second)) S().handles.erase(h);
  S().mappings.erase(it);
  return kSuccess;
}

Result cuMemSetAccess(DevicePtr at, size_t bytes, const MemAccessDesc* d, size_t count) {
  FAKE_ENTER("cuMemSetAccess", false);
  const auto it = S().mappings.find(at);
  if (it == S().mappings.end() || it->second.kind != Mapping::kVmm || it->second.bytes != bytes ||
      count != 1 || d->location.type != kLocationTypeDevice ||
      (d->flags != 0 && d->flags != kAccessRead && d->flags != kAccessReadWrite))
    return kInvalidValue;
  if (d->location.id < 0 || d->location.id >= static_cast<int>(S().visible.size()) ||
      S().visible[d->location.id] != it->second.device)
    return kInvalidDevice;
  it->second.access = d->flags;
  return kSuccess;
}

Result cuMemExportToShareableHandle(void* out, MemHandle handle, int type,
                                    unsigned long long flags) {
  FAKE_ENTER("cuMemExportToShareableHandle", false);
  const auto h = S().handles.find(handle);
  if (h == S().handles.end() || !h->second.held || type != kHandleTypePosixFd || flags != 0)
    return kInvalidValue;
  const int fd = ::fcntl(h->second.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kOperatingSystem;
  *static_cast<int*>(out) = fd;
  return kSuccess;
}

Result cuMemImportFromShareableHandle(MemHandle* out, void* os_handle, int type) {
  FAKE_ENTER("cuMemImportFromShareableHandle", false);
  if (Lacks("vmm-import")) return kOperatingSystem;
  if (type != kHandleTypePosixFd) return kInvalidValue;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  char link[256];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), link, sizeof link);
  const std::string want = "/memfd:" + MemoryName();
  struct stat st;
  if (n <= 0 || std::string(link, n).rfind(want, 0) != 0 || ::fstat(fd, &st) != 0)
    return kInvalidValue;
  VmmHandle h;
  h.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  h.bytes = static_cast<uint64_t>(st.st_size);
  h.device = std::atoi(std::string(link, n).c_str() + want.size());
  if (h.fd < 0) return kOperatingSystem;
  S().handles[*out = S().next_handle++] = h;
  return kSuccess;
}

}  // extern "C"
