#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// What is true of the host's memory alone: seals, and what another process may try with the
// descriptor.

std::unique_ptr<Memory> Allocate(uint64_t bytes = 1, absl::string_view label = "test") {
  return *CreateHostDevice(1)->Allocate(bytes, label);
}

absl::Status ImportStatus(int fd, uint64_t bytes, Access access) {
  ExportedMemory e;
  e.fd.reset(fd);
  e.bytes = bytes;
  return CreateHostDevice(1)->Import(std::move(e), access).status();
}

// Runs `f` in another process; its result there, or -1 where a signal ended it.
int InChild(const std::function<int()>& f) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    ::_exit(f());
  }
  int status;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int MemoryFile(uint64_t bytes, int seals) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(HostMemoryTest, SealedForEveryProcess) {
  const auto m = Allocate();
  m->data()[3] = 'x';
  ASSERT_TRUE(m->Seal().ok());
  const auto e = m->Export();
  ASSERT_TRUE(e.ok());
  const int fd = e->fd.get();
  EXPECT_EQ(InChild([&] { return ::pwrite(fd, "y", 1, 3) == 1; }), 0);
  EXPECT_EQ(InChild([&] { return ::ftruncate(fd, 0) == 0; }), 0);
  EXPECT_EQ(InChild([&] {
              return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
            }),
            0);
  EXPECT_EQ(InChild([&] {
              return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
            }),
            0);
  EXPECT_EQ(InChild([&] {
              const int again = ::open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDWR);
              return again >= 0 && ::pwrite(again, "y", 1, 3) == 1;
            }),
            0);
  // Written in place, whether the kernel lets a mapping become writable (then a private copy) or
  // not.
  InChild([&] {
    ::mprotect(m->data(), 4096, PROT_READ | PROT_WRITE);
    m->data()[3] = 'y';
    return 0;
  });
  EXPECT_EQ(m->data()[3], 'x');
}

TEST(HostMemoryTest, AnArenaKeepsItsSize) {
  const auto m = Allocate();
  const auto e = m->Export();
  ASSERT_TRUE(e.ok());
  EXPECT_NE(::ftruncate(e->fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(e->fd.get(), 1 << 30), 0);
  EXPECT_EQ(::pwrite(e->fd.get(), "y", 1, 3), 1);
  EXPECT_EQ(m->data()[3], 'y');
  EXPECT_NE(::fcntl(e->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(HostMemoryTest, PagesAreThereAtOnce) {
  const auto m = Allocate(8 << 20);
  struct stat st;
  ASSERT_EQ(::fstat(m->Export()->fd.get(), &st), 0);
  EXPECT_EQ(st.st_blocks * 512, 8 << 20);
}

TEST(HostMemoryTest, SealWaitsForNoWriter) {
  const auto m = Allocate();
  m->data()[0] = 'x';
  {
    auto other = CreateHostDevice(1)->Import(*m->Export(), Access::kReadWrite);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ((*other)->Seal().code(), absl::StatusCode::kFailedPrecondition);
    const absl::Status s = m->Seal();
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(s.message()), HasSubstr("mapped for writing"));
    m->data()[1] = 'y';
    EXPECT_EQ((*other)->data()[1], 'y');
  }
  EXPECT_TRUE(m->Seal().ok());
  EXPECT_EQ(m->data()[0], 'x');
}

TEST(HostMemoryTest, ImportChecksBeforeItMaps) {
  const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  EXPECT_TRUE(ImportStatus(MemoryFile(4096, all), 4096, Access::kRead).ok());
  EXPECT_TRUE(ImportStatus(MemoryFile(5000, all), 5000, Access::kRead).ok());
  EXPECT_TRUE(ImportStatus(MemoryFile(4096, F_SEAL_SHRINK), 4096, Access::kReadWrite).ok());
  const struct {
    int fd;
    uint64_t bytes;
    Access access;
    const char* named;
  } bad[] = {
      {MemoryFile(4096, all), 4097, Access::kRead, "4097 bytes told, the memory file has 4096"},
      {MemoryFile(4096, all), 0, Access::kRead, "0 bytes"},
      {MemoryFile(4096, all), ~uint64_t{0}, Access::kRead, "18446744073709551615"},
      {MemoryFile(4096, F_SEAL_SHRINK), 4096, Access::kRead, "rewritten"},
      {MemoryFile(4096, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 4096, Access::kRead, "rewritten"},
      {MemoryFile(4096, F_SEAL_WRITE), 4096, Access::kRead, "cut short"},
      {MemoryFile(4096, F_SEAL_GROW), 4096, Access::kReadWrite, "cut short"},
      {MemoryFile(4096, all), 4096, Access::kReadWrite, "against writing"},
      {::open("/dev/zero", O_RDONLY | O_CLOEXEC), 4096, Access::kRead, "no memory file"},
      {::open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 4096, Access::kRead, "no memory file"},
      {-1, 4096, Access::kRead, "Bad file descriptor"},
  };
  for (const auto& b : bad)
    EXPECT_THAT(std::string(ImportStatus(b.fd, b.bytes, b.access).message()), HasSubstr(b.named));
  ExportedMemory cuda;
  cuda.transport = Transport::kCudaIpc;
  EXPECT_EQ(CreateHostDevice(1)->Import(std::move(cuda), Access::kRead).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostMemoryTest, LimitsOfTheProcessAreErrors) {
  EXPECT_EQ(InChild([] {
              const rlimit none = {4, 4};
              ::setrlimit(RLIMIT_NOFILE, &none);
              while (::open("/dev/null", O_RDONLY) >= 0) {
              }
              return CreateHostDevice(1)->Allocate(1, "x").status().code() ==
                     absl::StatusCode::kResourceExhausted;
            }),
            1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(InChild([] {
              const rlimit space = {256 << 20, 256 << 20};
              ::setrlimit(RLIMIT_AS, &space);
              return CreateHostDevice(1)->Allocate(300 << 20, "x").status().code() ==
                     absl::StatusCode::kResourceExhausted;
            }),
            1);
#endif
  EXPECT_EQ(InChild([] {
              const rlimit size = {1 << 20, 1 << 20};
              ::signal(SIGXFSZ, SIG_IGN);
              ::setrlimit(RLIMIT_FSIZE, &size);
              return CreateHostDevice(1)->Allocate(300 << 20, "x").status().code() ==
                     absl::StatusCode::kResourceExhausted;
            }),
            1);
}

TEST(HostMemoryTest, LabelsAreForPeople) {
  const auto m = Allocate(1, std::string("../model\n\0x", 11) + std::string(300, 'n'));
  char name[512];
  const std::string link = absl::StrCat("/proc/self/fd/", m->Export()->fd.release());
  const ssize_t n = ::readlink(link.c_str(), name, sizeof name);
  ASSERT_GT(n, 0);
  EXPECT_THAT(std::string(name, n), HasSubstr("/memfd:glyd-.._model__x"));
}

}  // namespace
}  // namespace glyd
