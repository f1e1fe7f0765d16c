#ifndef GLYD_CLIENT_SRC_ATTACHED_H_
#define GLYD_CLIENT_SRC_ATTACHED_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/src/connection.h"
#include "client/src/lease_keeper.h"
#include "client/src/session.h"
#include "client/src/table.h"
#include "glyd/arena.h"
#include "glyd/info.h"
#include "glyd/model.h"
#include "kernels/device/device.h"

namespace glyd::internal {

// What a Model holds.
class AttachedModel {
 public:
  static absl::StatusOr<std::unique_ptr<AttachedModel>> Attach(
      std::shared_ptr<Connection> connection, absl::string_view name);
  ~AttachedModel();

  // Unmaps, and ends the lease. Once; OK after that. `deadline` zero: as every other call.
  absl::Status Release(absl::Duration deadline = absl::ZeroDuration());

  const std::shared_ptr<Connection>& connection() const { return connection_; }
  // The lease as it is now, and its session. Unavailable while it is being renewed after the
  // daemon's end; FailedPrecondition where the daemon has another model of the name now.
  struct Lease {
    std::shared_ptr<Session> session;
    std::string id;
  };
  absl::StatusOr<Lease> lease() const;
  std::string lease_id() const;
  const ModelInfo& info() const { return info_; }
  const Table& table() const { return table_; }
  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t memory_inode() const { return memory_inode_; }

 private:
  explicit AttachedModel(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  absl::Status Map(Session& session, const std::string& lease_id);

  std::shared_ptr<Connection> connection_;
  const std::shared_ptr<HeldLease> lease_ = std::make_shared<HeldLease>();
  ModelInfo info_;
  std::unique_ptr<Memory> memory_;
  uint64_t memory_bytes_ = 0, memory_inode_ = 0;
  Table table_;
};

// What an Arena holds.
class MappedArena {
 public:
  static absl::StatusOr<std::unique_ptr<MappedArena>> Create(std::shared_ptr<Connection> connection,
                                                             uint64_t bytes,
                                                             absl::string_view device);
  ~MappedArena();

  const std::string& id() const { return id_; }
  uint8_t* data() const { return memory_->data(); }
  uint64_t bytes() const { return bytes_; }

 private:
  MappedArena(std::shared_ptr<Connection> connection, std::shared_ptr<Session> session)
      : connection_(std::move(connection)), session_(std::move(session)) {}

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Session> session_;
  std::string id_;
  std::unique_ptr<Memory> memory_;
  uint64_t bytes_ = 0;
};

// The library's own way into the public objects.
struct Peek {
  static const AttachedModel& At(const Model& model) { return *model.attached_; }
};

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_ATTACHED_H_
