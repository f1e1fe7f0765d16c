// A library for LD_PRELOAD that makes a device worker's memory fail or be slow to go, as a driver
// would. Other programs that it is loaded into are left alone. The test and the worker share a
// page: the file that GLYD_WORKER_FAULTS names (worker_faults.h).

#include "tests/e2e/worker_faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

namespace {

glyd::WorkerFaults* g_faults = nullptr;

template <typename F>
F Next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

using Mmap = void* (*)(void*, size_t, int, int, int, off_t);

__attribute__((constructor)) void Start() {
  const char* path = ::getenv("GLYD_WORKER_FAULTS");
  if (path == nullptr || ::strcmp(program_invocation_short_name, "glyd-worker") != 0) return;
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* p = Next<Mmap>("mmap")(nullptr, sizeof(glyd::WorkerFaults), PROT_READ | PROT_WRITE,
                               MAP_SHARED, fd, 0);
  ::close(fd);
  if (p != MAP_FAILED) g_faults = static_cast<glyd::WorkerFaults*>(p);
}

// Whether this is the call that is to fail; errno is then set.
bool Fails() {
  if (g_faults == nullptr || g_faults->fail_in.load() <= 0) return false;
  if (g_faults->fail_in.fetch_sub(1) != 1) return false;
  ++g_faults->failed;
  errno = ENOMEM;
  return true;
}

// Blocks that are mapped. Whether `from` was among them; it is `to` then.
bool Note(void* from, void* to) {
  static std::atomic<void*> blocks[256];
  for (std::atomic<void*>& b : blocks) {
    void* was = from;
    if (b.compare_exchange_strong(was, to)) return true;
  }
  return false;
}

}  // namespace

extern "C" {

int memfd_create(const char* name, unsigned flags) {
  return Fails() ? -1 : Next<int (*)(const char*, unsigned)>("memfd_create")(name, flags);
}

int ftruncate(int fd, off_t size) {
  return Fails() ? -1 : Next<int (*)(int, off_t)>("ftruncate")(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  return Fails() ? -1 : Next<int (*)(int, int, off_t, off_t)>("fallocate")(fd, mode, offset, size);
}

// Of models' memory: what is shared, and the addresses that are reserved for it.
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const bool model = (flags & MAP_SHARED) != 0 || protection == PROT_NONE;
  if (model && Fails()) return MAP_FAILED;
  void* p = Next<Mmap>("mmap")(at, bytes, protection, flags, fd, offset);
  // A block that is mapped over what was reserved for it.
  if (p != MAP_FAILED && fd >= 0 && (flags & MAP_FIXED) != 0) Note(nullptr, p);
  return p;
}

int fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  void* argument = va_arg(args, void*);
  va_end(args);
  if ((command == F_ADD_SEALS || command == F_DUPFD_CLOEXEC) && Fails()) return -1;
  return Next<int (*)(int, int, ...)>("fcntl")(fd, command, argument);
}

int munmap(void* at, size_t bytes) {
  if (g_faults != nullptr && g_faults->slow_free_seconds > 0 && Note(at, nullptr)) {
    ++g_faults->freeing;
    const timespec t = {g_faults->slow_free_seconds, 0};
    ::nanosleep(&t, nullptr);
    --g_faults->freeing;
  }
  return Next<int (*)(void*, size_t)>("munmap")(at, bytes);
}

}  // extern "C"
