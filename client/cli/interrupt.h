#ifndef GLYD_CLIENT_CLI_INTERRUPT_H_
#define GLYD_CLIENT_CLI_INTERRUPT_H_

namespace glyd::cli {

// SIGHUP, SIGINT, SIGQUIT and SIGTERM. At first they end the process at once with 128 + their
// number: a call to the daemon has nothing here to tidy up. While a CancelOnSignal lives they are
// only noted, and the work at hand stops by itself and tidies up; the same signal a second time
// ends the process.
void InstallSignalHandlers();

class CancelOnSignal {
 public:
  CancelOnSignal();
  ~CancelOnSignal();
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;
};

// The signal that was noted, or 0.
int NotedSignal();

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_INTERRUPT_H_
