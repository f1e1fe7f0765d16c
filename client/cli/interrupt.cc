#include "client/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace glyd::cli {
namespace {

std::atomic<int> noted{0};
std::atomic<int> tidy_scopes{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

std::atomic<bool> on_terminal{false};

void Handle(int signal) {
  if (tidy_scopes.load() > 0 && noted.exchange(signal) != signal) return;
  // A bar may stand there: the shell's prompt goes on a line of its own.
  if (on_terminal.load()) (void)!::write(STDERR_FILENO, "\n", 1);
  _exit(128 + signal);
}

}  // namespace

void InstallSignalHandlers() {
  on_terminal = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action = {}, inherited;
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
    // One that was ignored before (nohup, a shell's background job) stays so.
    if (::sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
      ::sigaction(signal, &action, nullptr);
  // A file that grows past its limit and a reader that left are errors of the write, told with its
  // name.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

CancelOnSignal::CancelOnSignal() { ++tidy_scopes; }
CancelOnSignal::~CancelOnSignal() { --tidy_scopes; }

int NotedSignal() { return noted.load(); }

}  // namespace glyd::cli
