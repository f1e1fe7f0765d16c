#include "server/core/models.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/core/errors.h"
#include "server/core/log.h"
#include "server/core/proto_time.h"

namespace glyd {
namespace {

using glyd::v1::Model;
using glyd::v1::ModelEvent;
using worker::v1::ToWorker;

absl::Status NoModel(const std::string& name) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("no model is called \"", Printable(name), "\"")),
      "NO_MODEL");
}

std::string HolderText(const glyd::v1::Holder& h) {
  return absl::StrCat("pid ", h.pid(), " (", Printable(h.command()), ", uid ", h.uid(), ")");
}

}  // namespace

Models::Models(std::vector<ServedDevice*> devices, const Roots* roots, uint64_t generation)
    : devices_(std::move(devices)), roots_(roots), generation_(generation) {}

Models::~Models() {
  Stop();
  std::map<std::string, Entry> entries;
  std::map<std::string, Lease> leases;
  {
    absl::MutexLock lock(&mu_);
    entries.swap(entries_);
    leases.swap(leases_);
  }
  leases.clear();
  entries.clear();
  freer_.Stop();
  teller_.Stop();
}

ServedDevice* Models::PickDevice(const std::string& name) const {
  for (ServedDevice* d : devices_)
    if (name.empty() || name == "auto" || d->slot->name() == name) return d;
  return nullptr;
}

Models::Entry* Models::Find(const LoadCall& load) {
  const auto it = entries_.find(load.name);
  return it == entries_.end() || it->second.serial != load.serial ? nullptr : &it->second;
}

void Models::Settle(Entry& e, glyd::v1::ModelState state) {
  e.model.set_state(state);
  e.loading.reset();
  e.last_used = absl::Now();
  if (e.allocation != nullptr) {
    e.model.MergeFrom(e.allocation->facts);
    *e.model.mutable_loaded_at() = ToProto(e.last_used);
  }
  Tell(e, ModelEvent::KIND_CHANGED);
  for (Loaded& loaded : e.loaded)
    teller_.Post([loaded = std::move(loaded), m = Snapshot(e)] { loaded(m); });
  e.loaded.clear();
}

Model Models::Snapshot(const Entry& e) const {
  Model m = e.model;
  *m.mutable_last_used_at() = ToProto(e.last_used);
  m.set_leases(e.leases.size());
  for (const auto& [id, lease] : e.leases) {
    if (m.holders_size() == kHoldersTold) break;
    *m.add_holders() = lease->holder;
  }
  return m;
}

// Changes of a model that follow each other closely are told once, as the model is when its turn
// comes: a session that ends with a thousand leases is one change.
void Models::Tell(const Entry& e, ModelEvent::Kind kind) {
  if (kind != ModelEvent::KIND_CHANGED) {
    ModelEvent event;
    event.set_kind(kind);
    *event.mutable_model() = Snapshot(e);
    teller_.Post([this, event = std::move(event)] { watchers_.Push(event); });
    return;
  }
  if (!to_tell_.insert(e.serial).second) return;
  teller_.Post([this, name = e.model.name(), serial = e.serial] {
    ModelEvent event;
    event.set_kind(ModelEvent::KIND_CHANGED);
    {
      absl::MutexLock lock(&mu_);
      to_tell_.erase(serial);
      const auto it = entries_.find(name);
      if (it == entries_.end() || it->second.serial != serial) return;
      *event.mutable_model() = Snapshot(it->second);
    }
    watchers_.Push(event, absl::StrCat(name, "/", serial));
  });
}

void Models::Erase(const std::string& name, Garbage* garbage) {
  const auto it = entries_.find(name);
  Tell(it->second, ModelEvent::KIND_GONE);
  if (it->second.loading != nullptr) {
    it->second.model.set_error("unloaded while loading");
    it->second.model.set_state(glyd::v1::MODEL_STATE_FAILED);
    for (Loaded& l : it->second.loaded)
      teller_.Post([l = std::move(l), m = it->second.model] { l(m); });
  }
  garbage->push_back(std::move(it->second.allocation));
  entries_.erase(it);
  std::erase_if(allocations_, [](const auto& a) { return a.second.expired(); });
}

absl::StatusOr<bool> Models::Unload(const std::string& name, bool drain) {
  Garbage garbage;
  std::shared_ptr<DeviceSlot::Ongoing> loading;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) return NoModel(name);
    Entry& e = it->second;
    if (!e.leases.empty()) {
      std::vector<std::string> holders;
      for (const auto& [id, lease] : e.leases) {
        if (holders.size() == 10) {
          holders.push_back("...");
          break;
        }
        holders.push_back(HolderText(lease->holder));
      }
      if (!drain)
        return WithReason(absl::FailedPreconditionError(absl::StrCat(
                              "\"", name, "\" is leased ", e.leases.size(), " times, by ",
                              absl::StrJoin(holders, ", "), ": end them, or unload with drain")),
                          "IN_USE");
      e.model.set_state(glyd::v1::MODEL_STATE_DRAINING);
      Tell(e, ModelEvent::KIND_CHANGED);
      return true;
    }
    loading = e.loading;
    Erase(name, &garbage);
    Log(LogLevel::kInfo, "model unloaded", {{"name", name}});
  }
  if (loading != nullptr) loading->Cancel();
  return false;
}

absl::Status Models::Pin(const std::string& name, bool pinned) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  it->second.model.set_pinned(pinned);
  Tell(it->second, ModelEvent::KIND_CHANGED);
  return absl::OkStatus();
}

std::vector<Model> Models::List() const {
  std::vector<Model> out;
  absl::MutexLock lock(&mu_);
  for (const auto& [name, e] : entries_) out.push_back(Snapshot(e));
  return out;
}

absl::StatusOr<Model> Models::Get(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  return Snapshot(it->second);
}

absl::StatusOr<const Models::Entry*> Models::FindReady(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NoModel(name);
  const Entry& e = it->second;
  if (e.model.state() == glyd::v1::MODEL_STATE_LOADING)
    return WithReason(absl::UnavailableError(absl::StrCat(
                          "\"", name, "\" is still loading: ", e.model.load_bytes_done(), " of ",
                          e.model.load_bytes_total(), " bytes")),
                      "LOADING");
  if (e.model.state() == glyd::v1::MODEL_STATE_FAILED)
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("\"", name, "\" did not load: ", e.model.error())),
                      "LOAD_FAILED");
  return &e;
}

absl::StatusOr<std::shared_ptr<Allocation>> Models::Resident(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  GLYD_ASSIGN_OR_RETURN(const Entry* e, FindReady(name));
  return e->allocation;
}

absl::StatusOr<glyd::v1::ModelTable> Models::Table(const std::string& name) const {
  GLYD_ASSIGN_OR_RETURN(const std::shared_ptr<Allocation> a, Resident(name));
  return a->ReadTable();
}

absl::StatusOr<Models::Grant> Models::Attach(const Session& session, const std::string& name) {
  absl::MutexLock lock(&mu_);
  if (draining_) return StoppingError();
  GLYD_ASSIGN_OR_RETURN(const Entry* found, FindReady(name));
  Entry& e = entries_[name];
  if (found->model.state() == glyd::v1::MODEL_STATE_DRAINING)
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("\"", name, "\" is draining: no new lease is given")),
                      "DRAINING");
  std::set<std::string>& of_session = by_session_[session.id];
  if (of_session.size() >= kMaxLeasesPerSession)
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "this session has ", of_session.size(), " leases, the most it may")),
                      "TOO_MANY_LEASES");
  // 64 random bits: a lease's id says nothing of others'.
  const std::string id = absl::StrFormat("%016x-%d-%016x", generation_, next_id_++, RandomNumber());
  Lease& lease = leases_[id];
  lease.session_id = session.id;
  lease.model = name;
  lease.allocation = e.allocation;
  lease.holder.set_pid(session.pid);
  lease.holder.set_uid(session.uid);
  lease.holder.set_command(Printable(session.command));
  lease.holder.set_lease_id(id);
  e.last_used = absl::Now();
  *lease.holder.mutable_since() = ToProto(e.last_used);
  e.leases[id] = &lease;
  of_session.insert(id);
  Tell(e, ModelEvent::KIND_CHANGED);
  Grant grant{id, e.model};
  grant.model.set_leases(e.leases.size());
  return grant;
}

absl::StatusOr<std::shared_ptr<Allocation>> Models::Leased(uint64_t session_id,
                                                           const std::string& lease_id) {
  absl::MutexLock lock(&mu_);
  const auto it = leases_.find(lease_id);
  if (it != leases_.end() && it->second.session_id == session_id) {
    const auto e = entries_.find(it->second.model);
    if (e != entries_.end()) e->second.last_used = absl::Now();
    return it->second.allocation;
  }
  if (lease_id.size() > 17 && lease_id[16] == '-' &&
      lease_id.compare(0, 16, absl::StrFormat("%016x", generation_)) != 0)
    return WithReason(
        absl::FailedPreconditionError(
            "the lease is of another generation: the daemon was started again since; attach again"),
        "OTHER_GENERATION");
  return WithReason(absl::NotFoundError("no such lease in this session"), "NO_LEASE");
}

void Models::EndLease(const std::string& lease_id, Garbage* garbage) {
  const auto it = leases_.find(lease_id);
  garbage->push_back(std::move(it->second.allocation));
  const auto e = entries_.find(it->second.model);
  if (e != entries_.end() && e->second.leases.erase(lease_id) == 1) {
    e->second.last_used = absl::Now();
    if (e->second.leases.empty() && e->second.model.state() == glyd::v1::MODEL_STATE_DRAINING)
      Erase(e->first, garbage);
    else
      Tell(e->second, ModelEvent::KIND_CHANGED);
  }
  const auto of_session = by_session_.find(it->second.session_id);
  of_session->second.erase(lease_id);
  if (of_session->second.empty()) by_session_.erase(of_session);
  leases_.erase(it);
  TellIdle();
}

absl::Status Models::Release(uint64_t session_id, const std::string& lease_id) {
  GLYD_RETURN_IF_ERROR(Leased(session_id, lease_id).status());
  Garbage garbage;
  absl::MutexLock lock(&mu_);
  // Two releases at once: the second finds none.
  if (leases_.count(lease_id) == 0)
    return WithReason(absl::NotFoundError("no such lease in this session"), "NO_LEASE");
  EndLease(lease_id, &garbage);
  return absl::OkStatus();
}

void Models::EndSession(uint64_t session_id) {
  Garbage garbage;
  absl::MutexLock lock(&mu_);
  const auto of_session = by_session_.find(session_id);
  if (of_session == by_session_.end()) return;
  const std::set<std::string> ids = of_session->second;
  for (const std::string& id : ids) EndLease(id, &garbage);
}

void Models::Watch(const std::shared_ptr<Sink<ModelEvent>>& sink) {
  // On the teller's thread, and looked at there: a change that is told before the sink is among the
  // watchers is in what it sees now, and every later one is told to it.
  teller_.Post([this, sink] {
    const std::vector<Model> present = List();
    ModelEvent event;
    event.set_kind(ModelEvent::KIND_PRESENT);
    for (const Model& m : present) {
      *event.mutable_model() = m;
      sink->Push(event, "");
    }
    event.Clear();
    event.set_kind(ModelEvent::KIND_SYNCED);
    sink->Push(event, "");
    watchers_.Add(sink);
  });
}

void Models::TellIdle() {
  if (idle_ != nullptr && leases_.empty()) teller_.Post(std::exchange(idle_, nullptr));
}

void Models::Drain(std::function<void()> idle) {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  if (idle != nullptr) idle_ = std::move(idle);
  TellIdle();
}

void Models::Stop() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  if (!std::exchange(stopped_, true)) teller_.Post([this] { watchers_.End(StoppingError()); });
}

std::vector<DeviceSlot::Told> Models::Restore(const ServedDevice* device) const {
  std::vector<DeviceSlot::Told> out;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, weak] : allocations_) {
    const auto a = weak.lock();
    if (a == nullptr || a->device != device) continue;
    ToWorker m;
    m.mutable_import_model()->set_model_id(id);
    out.push_back({std::move(m), {a->memory, a->table}});
  }
  return out;
}

uint64_t Models::eviction_count() const {
  absl::MutexLock lock(&mu_);
  return evictions_;
}

uint64_t Models::lease_count() const {
  absl::MutexLock lock(&mu_);
  return leases_.size();
}

}  // namespace glyd
