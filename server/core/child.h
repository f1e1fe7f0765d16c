#ifndef GLYD_SERVER_CORE_CHILD_H_
#define GLYD_SERVER_CORE_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "glyd/worker/v1/worker.pb.h"

namespace glyd {

// A descriptor that several holders share.
using SharedFd = std::shared_ptr<const UniqueFd>;

// A glyd-worker process and the calls in flight in it. Thread-safe. Nothing here blocks but End and
// the destructor.
class Child {
 public:
  // What a call hears, on the child's reader thread: each answer with its descriptors; the last one
  // is `done` or `error`. Where the process ends first it is an error UNAVAILABLE, reason
  // WORKER_LOST. It must not block.
  using Event = std::function<void(const worker::v1::FromWorker&, std::vector<UniqueFd>)>;

  // `on_exit` hears, once, on the reader thread and after every call's last event, how the process
  // ended.
  static absl::StatusOr<std::unique_ptr<Child>> Spawn(
      const std::string& program, const std::vector<std::string>& arguments,
      std::function<void(const std::string&)> on_exit);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Starts a call: `message.call` is set here and returned. `event` may come before this returns.
  uint64_t Call(worker::v1::ToWorker message, std::vector<SharedFd> fds, Event event);
  // A further message of a call.
  void Send(uint64_t call, worker::v1::ToWorker message, std::vector<SharedFd> fds = {});
  // Ends the process at once.
  void Kill();
  // Ends the process: closes its socket, kills it after 2 s, and returns when its threads are done.
  // Never on an event's thread; nor may the last reference be dropped there. A second call does
  // nothing.
  void End();
  // When the last frame came.
  absl::Time last_heard() const;

 private:
  struct Outgoing {
    std::string data;
    std::vector<SharedFd> fds;
  };

  Child(pid_t pid, UniqueFd socket, std::function<void(const std::string&)> on_exit);
  void ReadLoop();
  void WriteLoop();

  const pid_t pid_;
  const UniqueFd socket_;
  const std::function<void(const std::string&)> on_exit_;

  mutable absl::Mutex mu_;
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Event> calls_ ABSL_GUARDED_BY(mu_);
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mu_);
  absl::Time last_heard_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;

  absl::Mutex end_mu_;
  std::thread reader_ ABSL_GUARDED_BY(end_mu_), writer_ ABSL_GUARDED_BY(end_mu_);
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_CHILD_H_
