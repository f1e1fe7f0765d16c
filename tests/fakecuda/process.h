#ifndef GLYD_TESTS_FAKECUDA_PROCESS_H_
#define GLYD_TESTS_FAKECUDA_PROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern char** environ;

namespace glyd::fake {

using Variables = std::map<std::string, std::string>;

// A fakecuda-peer with variables of its own in its environment.
class Process {
 public:
  explicit Process(const Variables& variables = {}) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> all;
    for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
    for (char** e = environ; *e != nullptr; ++e) {  // the first of a name counts
      const std::string text = *e;
      if (variables.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
    }
    std::vector<char*> env;
    for (auto& e : all) env.push_back(e.data());
    env.push_back(nullptr);
    std::string program = std::string(std::getenv("GLYD_BIN_DIR")) + "/fakecuda-peer";
    char* argv[] = {program.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, env.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    start_ = Receive();
  }
  ~Process() { End(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // What opening the driver answered.
  const std::string& start() const { return start_; }

  std::string Do(const std::string& command) {
    ::fputs((command + "\n").c_str(), to_);
    ::fflush(to_);
    return Receive();
  }
  // The number of a command that must succeed.
  std::string Get(const std::string& command) {
    const std::string answer = Do(command);
    EXPECT_EQ(answer.substr(0, 2), "0 ") << command;
    return answer.size() < 2 ? "" : answer.substr(2);
  }
  // Ends it as a program that is done ends; the wait's status.
  int End() {
    if (pid_ == 0) return 0;
    ::fclose(to_);
    ::fclose(from_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  void Kill() {
    ::kill(pid_, SIGKILL);
    End();
  }

 private:
  std::string Receive() {
    char line[4096];
    if (::fgets(line, sizeof line, from_) == nullptr) return "gone";
    std::string text = line;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  }

  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string start_;
};

// GPUs that no other test shares, and a log; every process gets them by the environment.
class FakeCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = ::testing::TempDir() + "fakecuda.XXXXXX";
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    ::setenv("FAKECUDA_TAG", dir.substr(dir.rfind('.') + 1).c_str(), 1);
    ::setenv("FAKECUDA_LOG", (dir_ + "/log").c_str(), 1);
  }
  std::string ReadLog() const {
    std::ifstream in(dir_ + "/log");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // With GPU 0's context current.
  static void Start(Process& p) {
    ASSERT_EQ(p.start(), "0");
    ASSERT_EQ(p.Do("retain c 0"), "0");
    ASSERT_EQ(p.Do("push c"), "0");
  }
  static void Stop(Process& p) {
    EXPECT_EQ(p.Do("pop"), "0");
    EXPECT_EQ(p.Do("release 0"), "0");
    EXPECT_EQ(p.End(), 0);
  }

  std::string dir_;
};

}  // namespace glyd::fake

#endif  // GLYD_TESTS_FAKECUDA_PROCESS_H_
