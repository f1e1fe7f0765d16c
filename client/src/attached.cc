#include "client/src/attached.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "client/src/convert.h"
#include "glyd/v1/model.pb.h"

namespace glyd::internal {
namespace {

// A release happens in destructors: a daemon that hangs must not hang them. The lease is the
// session's, so nothing is lost for good.
constexpr absl::Duration kReleaseDeadline = absl::Seconds(1);

// 70,000 tensors are about 8 MB of table.
constexpr uint64_t kMaxTableBytes = uint64_t{256} << 20;

absl::StatusOr<std::unique_ptr<Memory>> Import(Device& device, Session::Memory from,
                                               Access access) {
  ExportedMemory exported;
  exported.transport = Transport::kFd;
  exported.fd = std::move(from.fd);
  exported.bytes = from.bytes;
  return device.Import(std::move(exported), access);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachedModel>> AttachedModel::Attach(
    std::shared_ptr<Connection> connection, absl::string_view name) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, connection->GetSession());
  v1::AttachRequest request;
  request.set_name(std::string(name));
  v1::AttachReply reply;
  GLYD_RETURN_IF_ERROR(connection->Call(connection->models(), &v1::Models::Stub::Attach, request,
                                        &reply, session.get()));
  // From here on the lease is released by the destructor, whatever fails.
  std::unique_ptr<AttachedModel> m(new AttachedModel(std::move(connection)));
  m->info_ = FromProto(reply.model());
  m->lease_->model = m->info_.name;
  m->lease_->manifest_sha256 = m->info_.manifest_sha256;
  {
    absl::MutexLock lock(&m->lease_->mu);
    m->lease_->session = session;
    m->lease_->id = reply.lease_id();
  }
  if (reply.has_cuda_ipc())
    return absl::UnimplementedError(absl::StrCat(
        "model \"", Printable(name), "\" is shared by CUDA IPC, which this client does not ",
        "map: load it with --transport fd"));
  if (absl::Status s = m->Map(*session, reply.lease_id()); !s.ok())
    return absl::Status(s.code(), absl::StrCat("model \"", Printable(name), "\": ", s.message()));
  m->connection_->keeper().Keep(m->lease_);
  return m;
}

absl::Status AttachedModel::Map(Session& session, const std::string& lease_id) {
  GLYD_ASSIGN_OR_RETURN(Session::LeaseMemory fetched, session.FetchLease(lease_id));
  if (!fetched.memory.fd) return absl::DataLossError("the daemon sent no memory");
  struct stat st;
  if (::fstat(fetched.memory.fd.get(), &st) != 0)
    return ErrnoStatus(errno, "the memory's descriptor");
  memory_inode_ = st.st_ino;
  memory_bytes_ = fetched.memory.bytes;
  if (fetched.table.bytes > kMaxTableBytes)
    return absl::DataLossError(
        absl::StrCat("a table of ", fetched.table.bytes, " bytes, at most ", kMaxTableBytes));
  const uint64_t table_bytes = fetched.table.bytes;
  GLYD_ASSIGN_OR_RETURN(memory_,
                        Import(connection_->device(), std::move(fetched.memory), Access::kRead));
  GLYD_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> mapped_table,
                        Import(connection_->device(), std::move(fetched.table), Access::kRead));
  v1::ModelTable table;
  if (!table.ParseFromArray(mapped_table->data(), static_cast<int>(table_bytes)))
    return absl::DataLossError(absl::StrCat("its table of ", table_bytes, " bytes does not parse"));
  GLYD_ASSIGN_OR_RETURN(table_,
                        MakeTable(table, absl::MakeConstSpan(memory_->data(), memory_bytes_)));
  return absl::OkStatus();
}

absl::StatusOr<AttachedModel::Lease> AttachedModel::lease() const {
  absl::MutexLock lock(&lease_->mu);
  GLYD_RETURN_IF_ERROR(lease_->status);
  return Lease{lease_->session, lease_->id};
}

std::string AttachedModel::lease_id() const {
  absl::MutexLock lock(&lease_->mu);
  return lease_->id;
}

absl::Status AttachedModel::Release(absl::Duration deadline) {
  table_ = {};
  memory_ = nullptr;  // before the lease ends: nothing of ours may still read it then
  v1::ReleaseRequest request;
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&lease_->mu);
    request.set_lease_id(std::exchange(lease_->id, {}));
    session = std::move(lease_->session);
    if (request.lease_id().empty()) return absl::OkStatus();
    GLYD_RETURN_IF_ERROR(lease_->status);
  }
  v1::ReleaseReply reply;
  return connection_->Call(connection_->models(), &v1::Models::Stub::Release, request, &reply,
                           session.get(), deadline);
}

AttachedModel::~AttachedModel() { (void)Release(kReleaseDeadline); }

absl::StatusOr<std::unique_ptr<MappedArena>> MappedArena::Create(
    std::shared_ptr<Connection> connection, uint64_t bytes, absl::string_view device) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, connection->GetSession());
  v1::CreateArenaRequest request;
  request.set_bytes(bytes);
  request.set_device(std::string(device));
  v1::CreateArenaReply reply;
  GLYD_RETURN_IF_ERROR(connection->Call(connection->linear(), &v1::Linear::Stub::CreateArena,
                                        request, &reply, session.get()));
  std::unique_ptr<MappedArena> arena(new MappedArena(std::move(connection), std::move(session)));
  arena->id_ = reply.arena_id();
  arena->bytes_ = reply.bytes();
  GLYD_ASSIGN_OR_RETURN(Session::Memory fetched, arena->session_->FetchArena(arena->id_));
  if (reply.bytes() < bytes || fetched.bytes != reply.bytes())
    return absl::DataLossError(absl::StrCat("arena: ", bytes, " bytes asked, ", reply.bytes(),
                                            " told, a descriptor of ", fetched.bytes));
  GLYD_ASSIGN_OR_RETURN(
      arena->memory_, Import(arena->connection_->device(), std::move(fetched), Access::kReadWrite));
  return arena;
}

MappedArena::~MappedArena() {
  memory_ = nullptr;
  v1::ReleaseArenaRequest request;
  request.set_arena_id(id_);
  v1::ReleaseArenaReply reply;
  (void)connection_->Call(connection_->linear(), &v1::Linear::Stub::ReleaseArena, request, &reply,
                          session_.get(), kReleaseDeadline);
}

}  // namespace glyd::internal
