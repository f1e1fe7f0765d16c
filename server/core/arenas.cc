#include "server/core/arenas.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "kernels/device/device.h"
#include "server/core/errors.h"

namespace glyd {

using worker::v1::FromWorker;
using worker::v1::ToWorker;

Arenas::Arenas(std::vector<ServedDevice*> devices, uint64_t generation)
    : devices_(std::move(devices)), generation_(generation) {}

Arenas::~Arenas() {
  std::map<std::string, std::shared_ptr<Arena>> arenas;
  {
    absl::MutexLock lock(&mu_);
    arenas.swap(arenas_);
  }
  arenas.clear();
  freer_.Stop();
}

void Arenas::Create(uint64_t session_id, uint64_t bytes, const std::string& device,
                    Created created) {
  ServedDevice* on = nullptr;
  for (ServedDevice* d : devices_)
    if (on == nullptr && (device.empty() || device == d->slot->name())) on = d;
  if (on == nullptr)
    return created(WithReason(
        absl::NotFoundError(absl::StrCat("no device \"", Printable(device), "\"")), "NO_DEVICE"));
  if (bytes == 0 || bytes > kMaxBytes)
    return created(
        WithReason(absl::InvalidArgumentError(absl::StrCat("an arena of ", bytes, " bytes: 1 to ",
                                                           kMaxBytes, " are possible")),
                   "BAD_SIZE"));
  bytes = AlignUp(bytes, kAllocationAlign);
  auto arena = std::make_shared<Arena>();
  arena->session_id = session_id;
  arena->device = on;
  {
    absl::MutexLock lock(&mu_);
    if (per_session_[session_id] >= kMaxPerSession)
      return created(
          WithReason(absl::ResourceExhaustedError(absl::StrCat("this session has ", kMaxPerSession,
                                                               " arenas, the most it may")),
                     "TOO_MANY_ARENAS"));
    if (!on->budget.Take(bytes)) {
      if (per_session_[session_id] == 0) per_session_.erase(session_id);
      return created(
          WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                         "no room for an arena on %s: %d bytes asked, %d free, limit %d",
                         on->slot->name(), bytes, on->budget.free(), on->budget.limit())),
                     "NO_ROOM"));
    }
    ++per_session_[session_id];
    arena->bytes = bytes;
    arena->number = next_++;
  }
  arena->id = absl::StrFormat("%016x-a%d-%016x", generation_, arena->number, RandomNumber());
  arena->on_free = [this](Arena* gone) {
    gone->device->budget.Give(gone->bytes);
    freer_.Post([slot = gone->device->slot.get(), number = gone->number,
                 memory = std::move(gone->memory)]() mutable {
      ToWorker m;
      m.mutable_free_arena()->set_arena_id(number);
      slot->Tell(std::move(m));
      memory.reset();
    });
    absl::MutexLock lock(&mu_);
    const auto it = per_session_.find(gone->session_id);
    if (it != per_session_.end() && --it->second == 0) per_session_.erase(it);
  };
  ToWorker m;
  m.mutable_create_arena()->set_arena_id(arena->number);
  m.mutable_create_arena()->set_bytes(bytes);
  on->slot->Call(std::move(m), {},
                 [this, arena, created = std::move(created)](const FromWorker& answer,
                                                             std::vector<UniqueFd> fds) {
                   OnCreated(arena, answer, std::move(fds), created);
                 });
}

void Arenas::OnCreated(const std::shared_ptr<Arena>& arena, const FromWorker& m,
                       std::vector<UniqueFd> fds, const Created& created) {
  if (!m.has_error() && !m.has_done()) return;
  if (m.has_error() || fds.size() != 1) {
    // Its bytes are free again before that is told.
    std::exchange(arena->on_free, nullptr)(arena.get());
    return created(m.has_error() ? ToStatus(m.error())
                                 : absl::InternalError("the worker sent no memory"));
  }
  arena->memory = std::make_shared<const UniqueFd>(std::move(fds[0]));
  {
    absl::MutexLock lock(&mu_);
    arenas_[arena->id] = arena;
  }
  created(arena);
}

absl::StatusOr<std::shared_ptr<Arena>> Arenas::Find(uint64_t session_id,
                                                    const std::string& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = arenas_.find(id);
  if (it == arenas_.end() || it->second->session_id != session_id)
    return WithReason(absl::NotFoundError("no such arena in this session"), "NO_ARENA");
  return it->second;
}

absl::Status Arenas::Release(uint64_t session_id, const std::string& id) {
  std::shared_ptr<Arena> gone;
  absl::MutexLock lock(&mu_);
  const auto it = arenas_.find(id);
  if (it == arenas_.end() || it->second->session_id != session_id)
    return WithReason(absl::NotFoundError("no such arena in this session"), "NO_ARENA");
  gone = std::move(it->second);
  arenas_.erase(it);
  return absl::OkStatus();
}

void Arenas::EndSession(uint64_t session_id) {
  std::vector<std::shared_ptr<Arena>> gone;
  absl::MutexLock lock(&mu_);
  for (auto it = arenas_.begin(); it != arenas_.end();) {
    if (it->second->session_id == session_id) {
      gone.push_back(std::move(it->second));
      it = arenas_.erase(it);
    } else {
      ++it;
    }
  }
}

std::vector<DeviceSlot::Told> Arenas::Restore(const ServedDevice* device) const {
  std::vector<DeviceSlot::Told> out;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, a] : arenas_) {
    if (a->device != device) continue;
    ToWorker m;
    m.mutable_import_arena()->set_arena_id(a->number);
    m.mutable_import_arena()->set_bytes(a->bytes);
    out.push_back({std::move(m), {a->memory}});
  }
  return out;
}

}  // namespace glyd
