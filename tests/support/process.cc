#include "tests/support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace glyd::testing {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

std::pair<UniqueFd, UniqueFd> Pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) Die("pipe2");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> out;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string entry = *e;
    if (changes.count(entry.substr(0, entry.find('='))) == 0) out.push_back(entry);
  }
  for (const auto& [name, value] : changes)
    if (!value.empty()) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

std::string Program(const std::string& name) {
  const char* dir = std::getenv("GLYD_BIN_DIR");
  if (dir == nullptr) {
    std::fprintf(stderr, "GLYD_BIN_DIR is not set: run this by ctest\n");
    std::abort();
  }
  return std::string(dir) + "/" + name;
}

Process::Process(const std::vector<std::string>& argv, const ProcessOptions& options) {
  auto [in_read, in_write] = Pipe();
  auto [out_read, out_write] = Pipe();
  auto [err_read, err_write] = Pipe();
  UniqueFd file;
  if (!options.output_file.empty()) {
    file.reset(::open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!file) Die(options.output_file.c_str());
  }
  const std::vector<std::string> env = Environment(options.env);
  const std::vector<char*> args = Pointers(argv), envp = Pointers(env);
  pid_ = ::fork();
  if (pid_ < 0) Die("fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing running
    ::dup2(in_read.get(), STDIN_FILENO);
    ::dup2(file ? file.get() : out_write.get(), STDOUT_FILENO);
    ::dup2(err_write.get(), STDERR_FILENO);
    if (!options.cwd.empty() && ::chdir(options.cwd.c_str()) != 0) _exit(126);
    ::execve(args[0], args.data(), envp.data());
    _exit(127);
  }
  in_ = std::move(in_write);
  out_ = std::move(out_read);
  err_ = std::move(err_read);
}

Process::~Process() {
  if (pid_ > 0 && running()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Process::running() {
  if (reaped_) return false;
  int status;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  reaped_ = true;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

void Process::Signal(int signal) {
  if (running()) ::kill(pid_, signal);
}

bool Process::Pump(absl::Duration limit) {
  pollfd fds[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (!out_ && !err_) return false;
  const int64_t ms = std::max<int64_t>(absl::ToInt64Milliseconds(limit), 0);
  if (::poll(fds, 2, static_cast<int>(std::min<int64_t>(ms, 1000))) <= 0) return true;
  const std::pair<UniqueFd*, std::string*> ends[2] = {{&out_, &out_text_}, {&err_, &err_text_}};
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t n = ::read(fds[i].fd, buffer, sizeof buffer);
    if (n > 0) {
      ends[i].second->append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      ends[i].first->reset();
    }
  }
  return out_ || err_;
}

std::string Process::ReadLine(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  for (;;) {
    const size_t end = out_text_.find('\n', line_at_);
    if (end != std::string::npos) {
      const size_t begin = std::exchange(line_at_, end + 1);
      return out_text_.substr(begin, end - begin);
    }
    if (absl::Now() > until || !Pump(until - absl::Now())) return "";
  }
}

int Process::Wait(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  // A grandchild may keep the pipes: the process's own end decides, not theirs.
  while (running() && absl::Now() < until)
    if (!Pump(absl::Milliseconds(20))) absl::SleepFor(absl::Milliseconds(2));
  if (running()) {
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    reaped_ = true;
    return -1;
  }
  while (Pump(absl::ZeroDuration())) {
    pollfd fds[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    if (::poll(fds, 2, 0) <= 0) break;
  }
  return code_;
}

Outcome Run(const std::vector<std::string>& argv, const ProcessOptions& options) {
  Process p(argv, options);
  p.CloseInput();
  const int code = p.Wait();
  return {code, p.out(), p.err()};
}

}  // namespace glyd::testing
