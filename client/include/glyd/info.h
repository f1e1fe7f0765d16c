#ifndef GLYD_INFO_H_
#define GLYD_INFO_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace glyd {

// What the daemon says of its models, jobs and itself: plain values, a snapshot each. A time that
// has not come is absl::InfinitePast().

// How model memory reaches a client: as a file descriptor, or as a CUDA IPC handle.
enum class MemoryTransport { kDefault, kFd, kCudaIpc };
absl::string_view MemoryTransportName(MemoryTransport transport);  // "default", "fd", "cuda-ipc"

enum class ModelState { kUnknown, kLoading, kReady, kDraining, kFailed };
absl::string_view ModelStateName(ModelState state);  // "LOADING"

// Who holds a lease.
struct LeaseHolder {
  int pid = 0;
  uint32_t uid = 0;
  std::string command;  // the process's name when it connected
  absl::Time since = absl::InfinitePast();
  std::string lease_id;
};

struct ModelInfo {
  std::string name;
  ModelState state = ModelState::kUnknown;
  std::string error;  // of a FAILED model
  std::string path;   // ROOT/relative
  std::string device;
  MemoryTransport transport = MemoryTransport::kDefault;
  std::string format;               // "glyd-v3"
  std::string layout;               // "mma", "mma12"
  uint64_t packed_bytes = 0;        // of the save's tensors
  uint64_t allocation_bytes = 0;    // of device memory, shared by all names and leases of the block
  uint64_t bf16_bytes = 0;          // what the same tensors take in bf16
  uint64_t packs = 0, tensors = 0;  // tensors: of the source
  bool pinned = false;
  uint64_t leases = 0;               // all that are out
  std::vector<LeaseHolder> holders;  // 256 of them at most
  absl::Time loaded_at = absl::InfinitePast(), last_used_at = absl::InfinitePast();
  uint64_t load_bytes_done = 0, load_bytes_total = 0;  // while LOADING
  std::string source_repo, source_revision;
  std::string manifest_sha256;  // hex
  uint64_t allocation_id = 0;   // models with the same share one block
  uint64_t memory_inode = 0;    // of the memfd; 0 where there is none
};

// A model's parts by name, without its memory.
struct TensorInfo {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};
struct PackInfo {
  std::string name, layout;
  uint64_t rows = 0, cols = 0;
  uint64_t bytes = 0;    // of its three buffers
  uint64_t experts = 0;  // 0: not a pack of experts
  std::vector<std::string> tensors;
};
struct ModelContents {
  ModelInfo model;
  std::vector<PackInfo> packs;      // in the save's order
  std::vector<TensorInfo> tensors;  // saved as they are
};

// Jobs. Paths are ROOT/relative.
struct PackJob {
  std::string source, output;
  std::string layout;  // "mma", "mma12"; empty: mma
  bool no_merge = false, any = false, force = false;
  uint32_t threads = 0;  // 0: the daemon's choice
};
struct VerifyJob {
  std::string path;
  bool quick = false;
};
struct LoadJob {
  std::string name, path, device;
  bool pin = false, verify = false;
};
using JobSpec = std::variant<PackJob, VerifyJob, LoadJob>;

enum class JobState { kUnknown, kQueued, kRunning, kSucceeded, kFailed, kCancelled };
absl::string_view JobStateName(JobState state);  // "RUNNING"

struct JobInfo {
  std::string id, request_id;
  JobSpec spec;
  JobState state = JobState::kUnknown;
  std::string phase, item;  // what it is at
  uint64_t bytes_done = 0, bytes_total = 0;
  double bytes_per_second = 0;
  std::string error_reason, error;  // of one that FAILED
  std::string result_json;          // of one that SUCCEEDED
  uint64_t sequence = 0;            // rises with every change
  uint32_t uid = 0;                 // of the submitter
  absl::Time created_at = absl::InfinitePast(), started_at = absl::InfinitePast(),
             ended_at = absl::InfinitePast();
  std::vector<std::string> notes;

  bool ended() const {
    return state == JobState::kSucceeded || state == JobState::kFailed ||
           state == JobState::kCancelled;
  }
};

// The daemon.
struct DeviceStatus {
  std::string name, kind, model, uuid;
  uint64_t total_bytes = 0, budget_bytes = 0, used_bytes = 0;
  MemoryTransport transport = MemoryTransport::kDefault;
  int worker_pid = 0;  // 0: down
  uint32_t worker_restarts = 0;
  std::string error;  // why it is down
  std::vector<std::string> linear_targets;
};
struct RootInfo {
  std::string name, directory;
  bool writable = false;
};
struct DaemonInfo {
  std::string version;
  int pid = 0;
  uint64_t generation = 0;  // of this run
  absl::Time started_at = absl::InfinitePast();
  std::vector<DeviceStatus> devices;
  std::vector<RootInfo> roots;
  uint64_t sessions = 0, leases = 0;
  bool draining = false;
  uint32_t linear_threads = 0;
};

}  // namespace glyd

#endif  // GLYD_INFO_H_
