#ifndef GLYD_SERVER_CORE_ARENAS_H_
#define GLYD_SERVER_CORE_ARENAS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/core/models.h"

namespace glyd {

// Memory for activations that a session may write and a worker reads: sealed against shrinking, so
// that neither can pull it from under the other.
struct Arena {
  uint64_t number = 0;
  std::string id;
  uint64_t session_id = 0, bytes = 0;
  ServedDevice* device = nullptr;
  SharedFd memory;
  std::function<void(Arena*)> on_free;
  ~Arena() {
    if (on_free) on_free(this);
  }
};

// The sessions' arenas. Thread-safe; no call blocks.
class Arenas {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{16} << 30;
  static constexpr size_t kMaxPerSession = 64;

  explicit Arenas(std::vector<ServedDevice*> devices, uint64_t generation);
  ~Arenas();

  using Created = std::function<void(absl::StatusOr<std::shared_ptr<Arena>>)>;
  // InvalidArgument, reason BAD_SIZE, for 0 bytes or more than kMaxBytes; ResourceExhausted, reason
  // NO_ROOM. `created` may be called before this returns.
  void Create(uint64_t session_id, uint64_t bytes, const std::string& device, Created created);
  absl::Status Release(uint64_t session_id, const std::string& id);
  // NotFound, reason NO_ARENA, also for another session's.
  absl::StatusOr<std::shared_ptr<Arena>> Find(uint64_t session_id, const std::string& id) const;
  void EndSession(uint64_t session_id);
  std::vector<DeviceSlot::Told> Restore(const ServedDevice* device) const;

 private:
  void OnCreated(const std::shared_ptr<Arena>& arena, const worker::v1::FromWorker& m,
                 std::vector<UniqueFd> fds, const Created& created);

  const std::vector<ServedDevice*> devices_;
  const uint64_t generation_;
  mutable absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<std::string, std::shared_ptr<Arena>> arenas_ ABSL_GUARDED_BY(mu_);
  // Sessions with arenas on the way; an ended one's arena is dropped when it comes.
  std::map<uint64_t, size_t> per_session_ ABSL_GUARDED_BY(mu_);
  TaskThread freer_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_ARENAS_H_
