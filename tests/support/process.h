#ifndef GLYD_TESTS_SUPPORT_PROCESS_H_
#define GLYD_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace glyd::testing {

// A program of this build: "glyd", "glydd", by $GLYD_BIN_DIR.
std::string Program(const std::string& name);

struct ProcessOptions {
  std::map<std::string, std::string> env;  // on top of this process's; an empty value: not set
  std::string cwd;                         // empty: this process's
  std::string output_file;                 // stdout goes there; empty: it is read
};

// A child process with pipes to its stdin, stdout and stderr; killed at destruction where it still
// runs. Not thread-safe.
class Process {
 public:
  // Fails the test's process where it cannot be started.
  Process(const std::vector<std::string>& argv, const ProcessOptions& options = {});
  ~Process();
  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  void Signal(int signal);
  void CloseInput() { in_.reset(); }
  // The next line of stdout without its end; empty at its end, or after `limit`.
  std::string ReadLine(absl::Duration limit = absl::Seconds(20));
  // Waits for the end, reading stdout and stderr meanwhile: the exit code, 128 + the signal that
  // ended it, or -1 after `limit` (it is then killed).
  int Wait(absl::Duration limit = absl::Seconds(60));
  const std::string& out() const { return out_text_; }
  const std::string& err() const { return err_text_; }

 private:
  // Reads what is there within `limit`; false once both are at their end.
  bool Pump(absl::Duration limit);

  pid_t pid_ = -1;
  bool reaped_ = false;
  int code_ = -1;
  UniqueFd in_, out_, err_;
  std::string out_text_, err_text_;
  size_t line_at_ = 0;
};

struct Outcome {
  int code = -1;
  std::string out, err;
};
Outcome Run(const std::vector<std::string>& argv, const ProcessOptions& options = {});

// Asks until `holds` is true, for `limit` at most.
template <typename Predicate>
bool Eventually(Predicate holds, absl::Duration limit = absl::Seconds(10)) {
  const absl::Time until = absl::Now() + limit;
  while (!holds()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace glyd::testing

#endif  // GLYD_TESTS_SUPPORT_PROCESS_H_
