#ifndef GLYD_TESTS_E2E_DAEMON_H_
#define GLYD_TESTS_E2E_DAEMON_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace glyd {

// A fresh directory below the test's, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A program of the build (GLYD_BIN_DIR) and what it said. Output goes to files, so nothing blocks.
class Process {
 public:
  // `program` is a name in the build's bin folder or a path. `wrap` goes before it: {"prlimit",
  // "--nofile=64"}.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::vector<std::string>& wrap = {});
  ~Process();  // kills it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void Signal(int signal);
  // Its exit code, 128 + signal where one ended it, or -1 where it still runs after `timeout`.
  int Wait(absl::Duration timeout = absl::Seconds(30));
  std::string out() const;  // so far
  std::string err() const;
  // Waits until stderr (or stdout) holds `text`.
  bool WaitForErr(const std::string& text, absl::Duration timeout = absl::Seconds(30));
  bool WaitForOut(const std::string& text, absl::Duration timeout = absl::Seconds(30));

 private:
  TempDir dir_;
  pid_t pid_ = -1;
  int code_ = -1;
};

// Runs to its end: for short commands.
struct Finished {
  int code;
  std::string out, err;
};
Finished RunProgram(const std::string& program, const std::vector<std::string>& arguments);

// A glydd on a private socket and state directory, ready to serve.
class DaemonProcess {
 public:
  // `directory` holds sockets and state; `arguments` come after those.
  explicit DaemonProcess(const std::string& directory,
                         const std::vector<std::string>& arguments = {},
                         const std::vector<std::string>& wrap = {});
  std::string socket() const { return directory_ + "/glydd.sock"; }
  std::string broker_socket() const { return directory_ + "/broker.sock"; }
  std::string server() const { return "unix:" + socket(); }
  Process& process() { return process_; }
  bool ready() const { return ready_; }

 private:
  std::string directory_;
  Process process_;
  bool ready_;
};

// true once `condition` is, tried every 5 ms until `timeout`.
template <class Condition>
bool Eventually(const Condition& condition, absl::Duration timeout = absl::Seconds(10));

// Numbers of /proc that a leak would raise.
int OpenFds(pid_t pid);
pid_t ChildOf(pid_t pid);  // the first child, 0: none

}  // namespace glyd

#include "absl/time/clock.h"

namespace glyd {

template <class Condition>
bool Eventually(const Condition& condition, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace glyd

#endif  // GLYD_TESTS_E2E_DAEMON_H_
