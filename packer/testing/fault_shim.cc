// A library for LD_PRELOAD that makes system calls behave as a bad disk, a busy kernel or a dying
// machine would. GLYD_FAULT says how:
//   onebyte   reads move one byte at a time, but for every 64th, which moves what it may
//   short     writes move at most 100 bytes
//   eintr     every second call is interrupted before it does anything
//   FUNCTION=ERRNO:N   the N-th call of FUNCTION (0: every one) fails with that number
//   kill=N    the process kills itself in place of the N-th call that changes something on disk
// With ",no-exchange" behind it the file system has no renameat2, too.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace {

const char* Fault() {
  static const char* fault = ::getenv("GLYD_FAULT");
  return fault == nullptr ? "" : fault;
}

bool Is(const char* name) { return ::strcmp(Fault(), name) == 0; }

template <typename F>
F Next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

bool Interrupted() {
  static std::atomic<unsigned> calls{0};
  return Is("eintr") && calls.fetch_add(1) % 2 == 0;
}

// Whether this call of `function` is to fail; errno is then set.
bool Fails(const char* function) {
  static std::atomic<int> calls{0};
  const size_t n = ::strlen(function);
  if (::strncmp(Fault(), function, n) == 0 && Fault()[n] == '=') {
    const char* colon = ::strchr(Fault(), ':');
    const int which = colon == nullptr ? 0 : ::atoi(colon + 1);
    if (which == 0 || calls.fetch_add(1) + 1 == which) {
      errno = ::atoi(Fault() + n + 1);
      return true;
    }
  }
  if (Interrupted()) {
    errno = EINTR;
    return true;
  }
  return false;
}

// Called before whatever changes the disk.
void MayDie() {
  static std::atomic<int> calls{0};
  if (::strncmp(Fault(), "kill=", 5) == 0 && calls.fetch_add(1) + 1 == ::atoi(Fault() + 5))
    ::kill(::getpid(), SIGKILL);
}

size_t ReadSize(size_t n) {
  static std::atomic<unsigned> calls{0};
  return Is("onebyte") && calls.fetch_add(1) % 64 != 0 ? std::min<size_t>(n, 1) : n;
}

size_t WriteSize(size_t n) { return Is("short") ? std::min<size_t>(n, 100) : n; }

}  // namespace

extern "C" {

ssize_t pread(int fd, void* to, size_t n, off_t at) {
  static const auto next = Next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return Fails("pread") ? -1 : next(fd, to, ReadSize(n), at);
}

ssize_t pwrite(int fd, const void* from, size_t n, off_t at) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  MayDie();
  return Fails("pwrite") ? -1 : next(fd, from, WriteSize(n), at);
}

ssize_t write(int fd, const void* from, size_t n) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  if (fd > 2) MayDie();
  return fd > 2 && Fails("write") ? -1 : next(fd, from, WriteSize(n));
}

int fsync(int fd) {
  static const auto next = Next<int (*)(int)>("fsync");
  MayDie();
  return Fails("fsync") ? -1 : next(fd);
}

int flock(int fd, int operation) {
  static const auto next = Next<int (*)(int, int)>("flock");
  return Fails("flock") ? -1 : next(fd, operation);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
  static const auto next = Next<int (*)(int, int, off_t, off_t)>("fallocate");
  MayDie();
  return Fails("fallocate") ? -1 : next(fd, mode, at, n);
}

int ftruncate(int fd, off_t n) noexcept {
  static const auto next = Next<int (*)(int, off_t)>("ftruncate");
  MayDie();
  return next(fd, n);
}

int mkdirat(int dir, const char* name, mode_t mode) noexcept {
  static const auto next = Next<int (*)(int, const char*, mode_t)>("mkdirat");
  MayDie();
  return next(dir, name, mode);
}

int unlinkat(int dir, const char* name, int flags) noexcept {
  static const auto next = Next<int (*)(int, const char*, int)>("unlinkat");
  MayDie();
  return next(dir, name, flags);
}

int renameat2(int from, const char* a, int to, const char* b, unsigned flags) noexcept {
  static const auto next = Next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  MayDie();
  if (::strstr(Fault(), ",no-exchange") != nullptr && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return Fails("renameat2") ? -1 : next(from, a, to, b, flags);
}

int renameat(int from, const char* a, int to, const char* b) noexcept {
  static const auto next = Next<int (*)(int, const char*, int, const char*)>("renameat");
  MayDie();
  return Fails("renameat") ? -1 : next(from, a, to, b);
}

int openat(int dir, const char* name, int flags, ...) {
  static const auto next = Next<int (*)(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (flags & O_CREAT) MayDie();
  return next(dir, name, flags, mode);
}

}  // extern "C"
