#ifndef GLYD_SERVER_CORE_DEVICE_SLOT_H_
#define GLYD_SERVER_CORE_DEVICE_SLOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/core/child.h"

namespace glyd {

// A device and the worker that serves it, started again whenever it ends. Thread-safe; calls never
// block.
class DeviceSlot {
 public:
  struct Options {
    std::string device;   // "host"
    std::string program;  // glyd-worker
    std::string budget;   // Config::budget
    int threads = 0;
    std::vector<std::string> read;  // directories that the worker may read in
    // A worker silent for this long, though pinged, is killed.
    absl::Duration hang = absl::Seconds(10);
    std::function<void()> on_change;  // the worker came or went
  };
  struct Told {
    worker::v1::ToWorker message;
    std::vector<SharedFd> fds;
  };
  // What a fresh worker is told first: the models and arenas that are there. Called without locks
  // of this class.
  using Restore = std::function<std::vector<Told>()>;

  explicit DeviceSlot(Options options);
  ~DeviceSlot();

  // Starts the worker and waits until it serves. Fails where it cannot.
  absl::Status Start(Restore restore);
  // Ends the worker for good; calls in flight and later ones fail.
  void Stop();

  const std::string& name() const { return options_.device; }
  uint64_t budget_bytes() const;

  // One call's far end, for further messages to it: made by the caller, tied to the call by Call.
  class Ongoing {
   public:
    void Send(worker::v1::ToWorker message);
    void Cancel();

   private:
    friend class DeviceSlot;
    absl::Mutex mu_;
    std::weak_ptr<Child> child_ ABSL_GUARDED_BY(mu_);
    uint64_t call_ ABSL_GUARDED_BY(mu_) = 0;
  };

  // As Child::Call; a failure may be told before this returns, so hold no lock that `event` takes.
  // While the worker is being started again calls wait for it; after several failed starts they
  // fail UNAVAILABLE, reason DEVICE_DOWN.
  void Call(worker::v1::ToWorker message, std::vector<SharedFd> fds, Child::Event event,
            std::shared_ptr<Ongoing> ongoing = nullptr);
  // A call whose answer nobody waits for.
  void Tell(worker::v1::ToWorker message);

  struct State {
    worker::v1::Started facts;
    pid_t pid = 0;  // 0: down
    uint32_t restarts = 0;
    std::string error;
  };
  State state() const;

 private:
  struct Waiting {
    worker::v1::ToWorker message;
    std::vector<SharedFd> fds;
    Child::Event event;
    std::shared_ptr<Ongoing> ongoing;
  };

  static void Begin(const std::shared_ptr<Child>& child, Waiting call);
  void Supervise();
  bool Restart();
  void LookAfter(Child& child);
  absl::Status StartChild();

  const Options options_;
  Restore restore_;
  // The supervisor thread's alone.
  int failures_ = 0;
  absl::Time started_ = absl::Now();

  mutable absl::Mutex mu_;
  std::shared_ptr<Child> child_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  State state_ ABSL_GUARDED_BY(mu_);
  bool child_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool down_ ABSL_GUARDED_BY(mu_) = false;

  std::thread supervisor_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_DEVICE_SLOT_H_
