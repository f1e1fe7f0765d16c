#ifndef GLYD_SERVER_CORE_MODELS_H_
#define GLYD_SERVER_CORE_MODELS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "glyd/v1/models.pb.h"
#include "server/core/device_slot.h"
#include "server/core/fanout.h"
#include "server/core/memory_budget.h"
#include "server/core/roots.h"
#include "server/core/sessions.h"
#include "server/core/task_thread.h"

namespace glyd {

// A device: its worker and what of its memory may be used.
struct ServedDevice {
  std::unique_ptr<DeviceSlot> slot;
  MemoryBudget budget;
};

// One block of device memory that holds a model. Its memory goes when the last name, lease and call
// that holds it does; `on_free` hears of it then.
struct Allocation {
  uint64_t id = 0;
  ServedDevice* device = nullptr;
  uint64_t bytes = 0;  // taken of the device's budget
  uint64_t table_bytes = 0;
  SharedFd memory, table;
  glyd::v1::Model facts;     // format, layout, source, digest, counts
  std::string files_sha256;  // which files it was read from, and as of when
  bool verified = false;     // every tensor had the sha256 of the manifest when it was loaded
  std::function<void(Allocation*)> on_free;

  // Reads it from its memory: a file, so not for a lock's holder.
  absl::StatusOr<glyd::v1::ModelTable> ReadTable() const;
  ~Allocation() {
    if (on_free) on_free(this);
  }
};

// InvalidArgument, reason BAD_NAME, for what IsValidName refuses.
absl::Status CheckModelName(const std::string& name);

// The models of this daemon and the leases on them. Thread-safe; no call blocks.
class Models {
 public:
  // `devices` and `roots` outlive this.
  Models(std::vector<ServedDevice*> devices, const Roots* roots, uint64_t generation);
  ~Models();

  // Called once the model is READY or FAILED: its last state.
  using Loaded = std::function<void(const glyd::v1::Model&)>;
  // Starts to load; the same name and path again is the model that is there. AlreadyExists, reason
  // NAME_TAKEN.
  absl::StatusOr<glyd::v1::Model> Load(const glyd::v1::LoadRequest& request,
                                       Loaded loaded = nullptr);
  // true: draining, leases are still out. FailedPrecondition, reason IN_USE, naming the holders.
  absl::StatusOr<bool> Unload(const std::string& name, bool drain);
  absl::Status Pin(const std::string& name, bool pinned);
  std::vector<glyd::v1::Model> List() const;
  absl::StatusOr<glyd::v1::Model> Get(const std::string& name) const;
  // The table of a READY or DRAINING model, read from its memory. Reads a file: not for a lock's
  // holder.
  absl::StatusOr<glyd::v1::ModelTable> Table(const std::string& name) const;
  // The block of a READY or DRAINING model.
  absl::StatusOr<std::shared_ptr<Allocation>> Resident(const std::string& name) const;

  static constexpr size_t kMaxLeasesPerSession = 1024;
  static constexpr int kHoldersTold = 256;  // of a model, at most

  struct Grant {
    std::string lease_id;
    glyd::v1::Model model;
  };
  // ResourceExhausted, reason TOO_MANY_LEASES. The grant's model has no holders.
  absl::StatusOr<Grant> Attach(const Session& session, const std::string& name);
  absl::Status Release(uint64_t session_id, const std::string& lease_id);
  void EndSession(uint64_t session_id);
  // The block of a lease of this session. NotFound, reason NO_LEASE; FailedPrecondition, reason
  // OTHER_GENERATION.
  absl::StatusOr<std::shared_ptr<Allocation>> Leased(uint64_t session_id,
                                                     const std::string& lease_id);

  // Adds a sink that hears every model that is there, SYNCED, then each change.
  void Watch(const std::shared_ptr<Sink<glyd::v1::ModelEvent>>& sink);
  // No new loads and leases from now on; `idle` hears, once, when no lease is left.
  void Drain(std::function<void()> idle);
  // As Drain, and ends every watch.
  void Stop();

  // What a fresh worker of `device` is told.
  std::vector<DeviceSlot::Told> Restore(const ServedDevice* device) const;
  uint64_t lease_count() const;
  uint64_t eviction_count() const;
  uint64_t generation() const { return generation_; }

 private:
  struct Lease {
    glyd::v1::Holder holder;
    uint64_t session_id = 0;
    std::string model;
    std::shared_ptr<Allocation> allocation;
  };
  struct Entry {
    bool verify = false;    // asked for by its load
    uint64_t serial = 0;    // tells two models of one name apart
    glyd::v1::Model model;  // without holders
    std::shared_ptr<Allocation> allocation;
    std::shared_ptr<DeviceSlot::Ongoing> loading;
    std::map<std::string, Lease*> leases;
    absl::Time last_used;
    std::vector<Loaded> loaded;
  };
  struct LoadCall {
    std::string name;
    uint64_t serial = 0, allocation_id = 0;
    ServedDevice* device = nullptr;
    uint64_t taken = 0;  // of the budget
    std::string files;   // Reserve::files_sha256
    std::string digest;  // of the manifest
    bool verify = false, settled = false;
    std::shared_ptr<DeviceSlot::Ongoing> ongoing = std::make_shared<DeviceSlot::Ongoing>();
  };
  using Garbage = std::vector<std::shared_ptr<Allocation>>;

  void OnLoad(const std::shared_ptr<LoadCall>& load, const worker::v1::FromWorker& m,
              std::vector<UniqueFd> fds);
  bool Admit(LoadCall& load, const worker::v1::Reserve& want);
  bool MakeRoom(LoadCall& load, uint64_t bytes, Garbage* garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(LoadCall& load, const worker::v1::Done& done, std::vector<UniqueFd> fds);
  void Fail(LoadCall& load, const absl::Status& why);
  // Of a load whose entry is there.
  void SettleFailed(LoadCall& load, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* Find(const LoadCall& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Settle(Entry& entry, glyd::v1::ModelState state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(const std::string& name, Garbage* garbage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLease(const std::string& lease_id, Garbage* garbage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tell(const Entry& entry, glyd::v1::ModelEvent::Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  glyd::v1::Model Snapshot(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const Entry*> FindReady(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ServedDevice* PickDevice(const std::string& name) const;
  std::shared_ptr<Allocation> NewAllocation(const LoadCall& load);

  const std::vector<ServedDevice*> devices_;
  const Roots* const roots_;
  const uint64_t generation_;

  mutable absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false, stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> idle_ ABSL_GUARDED_BY(mu_);
  uint64_t evictions_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::set<std::string>> by_session_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> to_tell_ ABSL_GUARDED_BY(mu_);  // serials whose change waits to be told
  // Every block that still exists, also those that only a lease or a call holds.
  std::map<uint64_t, std::weak_ptr<Allocation>> allocations_ ABSL_GUARDED_BY(mu_);

  Fanout<glyd::v1::ModelEvent> watchers_;
  TaskThread teller_;  // tells watchers, in order
  TaskThread freer_;   // closes and unmaps
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_MODELS_H_
