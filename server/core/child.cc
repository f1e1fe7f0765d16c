#include "server/core/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "server/core/errors.h"

extern char** environ;

namespace glyd {
namespace {

using worker::v1::FromWorker;
using worker::v1::ToWorker;

// A model's table is the largest message that a worker sends: tens of thousands of notes and names
// fit.
constexpr size_t kMaxMessage = size_t{64} << 20;

std::string ExitText(int status) {
  if (WIFSIGNALED(status))
    return absl::StrCat("ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)),
                        ")");
  return absl::StrCat("ended with code ", WEXITSTATUS(status));
}

FromWorker LostMessage(absl::string_view text) {
  return ErrorMessage(WithReason(absl::UnavailableError(text), "WORKER_LOST"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Spawn(
    const std::string& program, const std::vector<std::string>& arguments,
    std::function<void(const std::string&)> on_exit) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return ErrnoStatus(errno, "socketpair");
  UniqueFd ours(pair[0]), theirs(pair[1]);
  // dup2 onto itself would leave the descriptor close-on-exec.
  if (theirs.get() == 3) {
    theirs.reset(::fcntl(3, F_DUPFD_CLOEXEC, 4));
    if (!theirs) return ErrnoStatus(errno, "worker socket");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // Its own process group: a terminal's interrupt goes to glydd, which ends its workers in order.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t pid;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("starting ", program));
  return std::unique_ptr<Child>(new Child(pid, std::move(ours), std::move(on_exit)));
}

Child::Child(pid_t pid, UniqueFd socket, std::function<void(const std::string&)> on_exit)
    : pid_(pid),
      socket_(std::move(socket)),
      on_exit_(std::move(on_exit)),
      last_heard_(absl::Now()) {
  absl::MutexLock lock(&end_mu_);
  reader_ = std::thread([this] { ReadLoop(); });
  writer_ = std::thread([this] { WriteLoop(); });
}

Child::~Child() { End(); }

void Child::End() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  {
    absl::MutexLock lock(&mu_);
    if (!mu_.AwaitWithTimeout(absl::Condition(&ended_), absl::Seconds(2))) ::kill(pid_, SIGKILL);
  }
  absl::MutexLock lock(&end_mu_);
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

void Child::Kill() {
  absl::MutexLock lock(&mu_);
  if (!ended_) ::kill(pid_, SIGKILL);
}

absl::Time Child::last_heard() const {
  absl::MutexLock lock(&mu_);
  return last_heard_;
}

uint64_t Child::Call(ToWorker message, std::vector<SharedFd> fds, Event event) {
  uint64_t call;
  {
    absl::MutexLock lock(&mu_);
    call = next_call_++;
    if (!ended_) {
      calls_.emplace(call, std::move(event));
      message.set_call(call);
      outgoing_.push_back({message.SerializeAsString(), std::move(fds)});
      return call;
    }
  }
  FromWorker lost = LostMessage("the worker has ended");
  lost.set_call(call);
  event(lost, {});
  return call;
}

void Child::Send(uint64_t call, ToWorker message, std::vector<SharedFd> fds) {
  absl::MutexLock lock(&mu_);
  message.set_call(call);
  if (!ended_) outgoing_.push_back({message.SerializeAsString(), std::move(fds)});
}

void Child::WriteLoop() {
  for (;;) {
    Outgoing out;
    {
      absl::MutexLock lock(&mu_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return ended_ || !outgoing_.empty();
      };
      mu_.Await(absl::Condition(&ready));
      if (ended_) return;
      out = std::move(outgoing_.front());
      outgoing_.pop_front();
    }
    std::vector<int> fds;
    for (const SharedFd& fd : out.fds) fds.push_back(fd->get());
    // Where the peer is gone the reader hears of it.
    if (!SendFrame(socket_.get(), out.data, fds).ok()) ::shutdown(socket_.get(), SHUT_RDWR);
  }
}

void Child::ReadLoop() {
  for (;;) {
    absl::StatusOr<Frame> frame = RecvFrame(socket_.get(), kMaxMessage);
    FromWorker message;
    if (!frame.ok() || !message.ParseFromString(frame->data)) break;
    const bool last = message.has_done() || message.has_error();
    Event event;
    {
      absl::MutexLock lock(&mu_);
      last_heard_ = absl::Now();
      const auto it = calls_.find(message.call());
      if (it == calls_.end()) continue;
      event = last ? std::move(it->second) : it->second;
      if (last) calls_.erase(it);
    }
    event(message, std::move(frame->fds));
  }
  // The socket is at its end; a process that lives on without it is of no use. One that was asked
  // to end gets to.
  ::shutdown(socket_.get(), SHUT_RDWR);
  int status = 0;
  pid_t got = 0;
  for (int i = 0; i < 100 && got == 0; ++i) {
    got = ::waitpid(pid_, &status, WNOHANG);
    if (got == 0) absl::SleepFor(absl::Milliseconds(i < 20 ? 1 : 20));
  }
  std::map<uint64_t, Event> calls;
  std::string how;
  {
    // Under the lock: after this nobody signals a pid that may be another's.
    absl::MutexLock lock(&mu_);
    if (got == 0) {
      ::kill(pid_, SIGKILL);
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
    }
    how = ExitText(status);
    calls.swap(calls_);
    outgoing_.clear();
    ended_ = true;
  }
  FromWorker lost =
      LostMessage(absl::StrCat("the worker ", how, " during this call",
                               WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                   ? ", perhaps for want of memory (the kernel's log tells)"
                                   : "",
                               "; another takes its place: try again"));
  for (auto& [call, event] : calls) {
    lost.set_call(call);
    event(lost, {});
  }
  on_exit_(how);
}

}  // namespace glyd
