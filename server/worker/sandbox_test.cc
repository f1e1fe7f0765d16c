#include "server/worker/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// What `action` gives in a child that entered the sandbox: 0 where it could, else its errno.
int InSandbox(const SandboxOptions& options, const std::function<bool()>& action) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    EnterSandbox(options);
    errno = 0;
    ::_exit(action() ? 0 : errno);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::string* d : {&options_.read.emplace_back(), &options_.write.emplace_back()}) {
      *d = ::testing::TempDir() + "/glydXXXXXX";
      ASSERT_NE(::mkdtemp(d->data()), nullptr);
    }
    std::fclose(std::fopen((options_.read[0] + "/file").c_str(), "w"));
  }
  bool HasLandlock() {
    int pipe[2];
    if (::pipe(pipe) != 0) return false;
    const pid_t pid = ::fork();
    if (pid == 0) {
      const std::string held = EnterSandbox(options_);
      (void)!::write(pipe[1], held.data(), held.size());
      ::_exit(0);
    }
    ::waitpid(pid, nullptr, 0);
    char held[200] = {};
    (void)!::read(pipe[0], held, sizeof held - 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
    EXPECT_THAT(held, HasSubstr("no-new-privs"));
    EXPECT_THAT(held, HasSubstr("seccomp"));
    return std::string(held).find("landlock") != std::string::npos;
  }
  SandboxOptions options_;
};

TEST_F(SandboxTest, LimitsHoldForGood) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is more than any limit";
#endif
  options_.memory_bytes = uint64_t{1} << 40;
  options_.open_files = 50;
  EXPECT_EQ(InSandbox(options_,
                      [] {
                        rlimit r;
                        return ::getrlimit(RLIMIT_DATA, &r) == 0 && r.rlim_max == rlim_t{1} << 40 &&
                               ::getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_max == 50;
                      }),
            0);
  EXPECT_EQ(InSandbox(options_,
                      [] {
                        for (int i = 0; i < 50; ++i)
                          if (::dup(0) < 0) return false;
                        return true;
                      }),
            EMFILE);
}

TEST_F(SandboxTest, WhatAWorkerNeedsStillWorks) {
  EXPECT_EQ(InSandbox(options_,
                      [&] {
                        bool ran = false;
                        std::thread([&ran] { ran = true; }).join();
                        return ran;
                      }),
            0);
  EXPECT_EQ(InSandbox(options_,
                      [&] { return ::open((options_.read[0] + "/file").c_str(), O_RDONLY) >= 0; }),
            0);
  EXPECT_EQ(InSandbox(options_,
                      [&] {
                        const std::string d = options_.write[0];
                        return ::mkdir((d + "/tmp").c_str(), 0700) == 0 &&
                               ::open((d + "/tmp/f").c_str(), O_CREAT | O_RDWR, 0600) >= 0 &&
                               ::rename((d + "/tmp").c_str(), (d + "/out").c_str()) == 0;
                      }),
            0);
}

TEST_F(SandboxTest, NoNetworkNoProgramsNoProcesses) {
  EXPECT_EQ(InSandbox(options_, [] { return ::socket(AF_INET, SOCK_STREAM, 0) >= 0; }), EPERM);
  EXPECT_EQ(InSandbox(options_, [] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }), EPERM);
  EXPECT_EQ(InSandbox(options_, [] { return ::execl("/bin/true", "true", nullptr) == 0; }), EPERM);
  EXPECT_EQ(InSandbox(options_, [] { return ::fork() >= 0; }), EPERM);
  EXPECT_EQ(InSandbox(options_, [] { return ::kill(::getppid(), 0) == 0; }), EPERM);
}

TEST_F(SandboxTest, NoOtherDirectories) {
  if (!HasLandlock()) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(InSandbox(options_, [] { return ::open("/etc/passwd", O_RDONLY) >= 0; }), EACCES);
  EXPECT_EQ(InSandbox(options_,
                      [&] {
                        return ::open((options_.read[0] + "/new").c_str(), O_CREAT | O_WRONLY,
                                      0600) >= 0;
                      }),
            EACCES);
  EXPECT_EQ(
      InSandbox(options_, [&] { return ::unlink((options_.read[0] + "/file").c_str()) == 0; }),
      EACCES);
}

}  // namespace
}  // namespace glyd
