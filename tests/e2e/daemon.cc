#include "tests/e2e/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace glyd {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string BinDir() {
  const char* dir = std::getenv("GLYD_BIN_DIR");
  if (dir != nullptr) return dir;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
}

}  // namespace

TempDir::TempDir() {
  // Short: a socket's path has 107 characters at most.
  path_ = "/tmp/glydXXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) std::abort();
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& wrap) {
  const std::string path =
      program.find('/') == std::string::npos ? BinDir() + "/" + program : program;
  std::vector<std::string> all = wrap;
  all.push_back(path);
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& a : all) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, (dir_ / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (dir_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
  if (::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
}

Process::~Process() {
  if (pid_ > 0 && code_ < 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Process::running() { return Wait(absl::ZeroDuration()) < 0 && pid_ > 0; }

void Process::Signal(int signal) {
  if (pid_ > 0 && code_ < 0) ::kill(pid_, signal);
}

int Process::Wait(absl::Duration timeout) {
  if (code_ >= 0 || pid_ <= 0) return code_;
  Eventually(
      [this] {
        int status;
        if (::waitpid(pid_, &status, WNOHANG) == pid_)
          code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return code_ >= 0;
      },
      timeout);
  return code_;
}

std::string Process::out() const { return ReadFile(dir_ / "out"); }
std::string Process::err() const { return ReadFile(dir_ / "err"); }

bool Process::WaitForErr(const std::string& text, absl::Duration timeout) {
  return Eventually([&] { return err().find(text) != std::string::npos || !running(); }, timeout) &&
         err().find(text) != std::string::npos;
}

bool Process::WaitForOut(const std::string& text, absl::Duration timeout) {
  return Eventually([&] { return out().find(text) != std::string::npos || !running(); }, timeout) &&
         out().find(text) != std::string::npos;
}

Finished RunProgram(const std::string& program, const std::vector<std::string>& arguments) {
  Process p(program, arguments);
  const int code = p.Wait(absl::Minutes(2));
  return {code, p.out(), p.err()};
}

DaemonProcess::DaemonProcess(const std::string& directory,
                             const std::vector<std::string>& arguments,
                             const std::vector<std::string>& wrap)
    : directory_(directory),
      process_(
          "glydd",
          [&] {
            std::vector<std::string> all = {"--socket", directory + "/glydd.sock", "--state",
                                            directory + "/state"};
            all.insert(all.end(), arguments.begin(), arguments.end());
            return all;
          }(),
          wrap),
      ready_(process_.WaitForErr("glydd: ready")) {}

int OpenFds(pid_t pid) {
  int n = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    (void)entry;
    ++n;
  }
  return n;
}

pid_t ChildOf(pid_t pid) {
  // A child is listed under the thread that started it.
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    std::istringstream children(ReadFile(task.path() / "children"));
    if (pid_t child = 0; children >> child) return child;
  }
  return 0;
}

}  // namespace glyd
