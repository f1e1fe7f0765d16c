#ifndef GLYD_CLIENT_H_
#define GLYD_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "glyd/arena.h"
#include "glyd/info.h"
#include "glyd/model.h"
#include "glyd/status.h"

namespace glyd {

namespace internal {
class Connection;
}

struct ConnectOptions {
  // "unix:PATH", or "HOST:PORT" with the three TLS files. Empty: $GLYD_SERVER, else
  // DefaultServer().
  std::string server;
  absl::Duration connect_timeout = absl::Seconds(5);
  // Of each call. Watching and waiting take as long as what they wait for, in calls of bounded
  // length.
  absl::Duration deadline = absl::Seconds(30);
  // PEM files of a TCP server: its CA, and this client's certificate and key.
  std::string tls_ca_file, tls_cert_file, tls_key_file;
};

// unix:$XDG_RUNTIME_DIR/glydd/glydd.sock, or unix:/run/glydd/glydd.sock where that is not set.
std::string DefaultServer();

struct LoadOptions {
  std::string name;    // [A-Za-z0-9._-]{1,128}, not starting with a dot
  std::string path;    // ROOT/relative
  std::string device;  // empty: the daemon's choice
  bool pin = false;
  bool verify = false;  // hash every tensor before READY
  MemoryTransport transport = MemoryTransport::kDefault;
  std::string layout;  // empty: as saved
};

// A connection to a daemon. Copies share it; so do the models and arenas got through it, which may
// outlive every Client. Calls block up to their deadline and fail with the daemon's status, its
// reason as a payload (status.h).
//
// Thread-safe: any number of threads may call any methods at once.
class Client {
 public:
  // Returns once a daemon answers. Unavailable with kReasonNoDaemon where none does;
  // PermissionDenied where the socket may not be opened; InvalidArgument for an address or TLS
  // files that cannot be used.
  static absl::StatusOr<Client> Connect(ConnectOptions options = {});

  // The address in use.
  const std::string& server() const;

  // Models.

  // Starts a load and returns: the model is LOADING, or READY where its bytes are already held.
  absl::StatusOr<ModelInfo> Load(const LoadOptions& options) const;
  // Waits until `name` is READY (its info), FAILED (FailedPrecondition with the model's error) or
  // gone (NotFound). `watch`, where given, is called with each change; false from it ends the wait
  // with Cancelled.
  absl::StatusOr<ModelInfo> WaitUntilLoaded(
      absl::string_view name, const std::function<bool(const ModelInfo&)>& watch = {}) const;
  // true: leases are still out, and the model goes with the last. Without `drain` these are
  // FailedPrecondition.
  absl::StatusOr<bool> Unload(absl::string_view name, bool drain = false) const;
  absl::Status Pin(absl::string_view name, bool pinned) const;
  absl::StatusOr<std::vector<ModelInfo>> List() const;  // by name
  absl::StatusOr<ModelInfo> Get(absl::string_view name) const;
  absl::StatusOr<ModelContents> GetContents(absl::string_view name) const;
  // Hashes the model in the daemon's memory; the names of bad tensors, none where all is well.
  // `watch` is called with bytes done and total; false from it ends with Cancelled.
  absl::StatusOr<std::vector<std::string>> VerifyResident(
      absl::string_view name, const std::function<bool(uint64_t, uint64_t)>& watch = {}) const;

  // A lease and the model's memory, mapped read-only (model.h). Over a Unix socket alone.
  absl::StatusOr<Model> Attach(absl::string_view name) const;
  // Memory for activations (arena.h), rounded up to 2 MiB. `device` empty: the daemon's first.
  absl::StatusOr<Arena> CreateArena(uint64_t bytes, absl::string_view device = {}) const;

  // Jobs.

  // `request_id`: 1 to 128 characters, the same again gives the same job; empty: the daemon makes
  // one.
  absl::StatusOr<JobInfo> Submit(const JobSpec& spec, absl::string_view request_id = {}) const;
  absl::StatusOr<JobInfo> GetJob(absl::string_view id) const;
  absl::StatusOr<std::vector<JobInfo>> ListJobs() const;  // newest first
  // The job when it has ended, however it ended. `watch` is called with each change; false from it
  // ends the watch (not the job) with Cancelled.
  absl::StatusOr<JobInfo> WatchJob(absl::string_view id,
                                   const std::function<bool(const JobInfo&)>& watch = {}) const;
  // The job as it is after that; one that has ended stays as it ended.
  absl::StatusOr<JobInfo> CancelJob(absl::string_view id) const;

  // The daemon.

  absl::StatusOr<DaemonInfo> Info() const;
  // true: SERVING. `service`: "", "liveness", "readiness", or a model's name; NotFound for one it
  // does not know.
  absl::StatusOr<bool> IsServing(absl::string_view service = {}) const;
  // No new leases and jobs from now on; with `exit` the daemon ends with the last lease. The leases
  // still out.
  absl::StatusOr<uint64_t> Drain(bool exit) const;

 private:
  explicit Client(std::shared_ptr<internal::Connection> connection);

  std::shared_ptr<internal::Connection> connection_;
};

}  // namespace glyd

#endif  // GLYD_CLIENT_H_
