#ifndef GLYD_SERVER_WORKER_CHANNEL_H_
#define GLYD_SERVER_WORKER_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/progress.h"
#include "base/socket.h"
#include "glyd/worker/v1/worker.pb.h"

namespace glyd {

// The worker's end of the socket to glydd. Thread-safe for sending; one thread receives.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}

  void Send(uint64_t call, worker::v1::FromWorker message, const std::vector<int>& fds = {});
  void SendDone(uint64_t call, worker::v1::Done done, const std::vector<int>& fds = {});
  void SendError(uint64_t call, const absl::Status& status);
  // One message with its descriptors; false at the socket's end: glydd is gone or wants this
  // process to end.
  bool Receive(worker::v1::ToWorker* message, std::vector<UniqueFd>* fds);

 private:
  const int socket_;
  absl::Mutex mu_;
};

// Progress of one call, told to glydd at most ten times a second. `cancelled` is asked for often
// and cheap.
class CallProgress : public Progress {
 public:
  CallProgress(Channel* channel, uint64_t call, std::function<bool()> cancelled)
      : channel_(channel), call_(call), cancelled_(std::move(cancelled)) {}
  void Phase(absl::string_view name, uint64_t total_bytes) override;
  void Advance(uint64_t bytes) override;
  void Item(absl::string_view name) override;
  void Note(absl::string_view text) override;
  bool cancelled() const override { return cancelled_(); }

 private:
  void Tell(bool now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Channel* const channel_;
  const uint64_t call_;
  const std::function<bool()> cancelled_;
  absl::Mutex mu_;
  worker::v1::FromWorker message_ ABSL_GUARDED_BY(mu_);
  absl::Time told_ ABSL_GUARDED_BY(mu_);
};

// What the two kinds of worker do until their socket ends; the process's exit code.
// `sandbox` is what EnterSandbox said.
int RunDeviceWorker(const std::string& device, int threads, const std::string& sandbox, int socket);
int RunJobWorker(int socket);

}  // namespace glyd

#endif  // GLYD_SERVER_WORKER_CHANNEL_H_
