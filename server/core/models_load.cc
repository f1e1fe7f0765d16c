// How a model comes to be READY: admitted by the budget, read by a worker, settled.

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/core/errors.h"
#include "server/core/log.h"
#include "server/core/models.h"

namespace glyd {
namespace {

using glyd::v1::Model;
using glyd::v1::ModelEvent;
using worker::v1::FromWorker;
using worker::v1::ToWorker;

constexpr uint64_t kMaxTableBytes = uint64_t{1} << 30;

}  // namespace

absl::Status CheckModelName(const std::string& name) {
  if (IsValidName(name)) return absl::OkStatus();
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "name \"", Printable(name, 150), "\" (", name.size(),
          " bytes): 1 to 128 of A-Z a-z 0-9 . _ - are allowed, not starting with a dot")),
      "BAD_NAME");
}

absl::StatusOr<glyd::v1::ModelTable> Allocation::ReadTable() const {
  if (table_bytes > kMaxTableBytes)
    return absl::ResourceExhaustedError(
        absl::StrCat("a table of ", table_bytes, " bytes, at most ", kMaxTableBytes));
  std::string bytes(table_bytes, '\0');
  GLYD_RETURN_IF_ERROR(PreadFull(table->get(), bytes.data(), bytes.size(), 0, "the model's table"));
  glyd::v1::ModelTable out;
  if (!out.ParseFromString(bytes)) return absl::InternalError("the model's table does not parse");
  return out;
}

absl::StatusOr<Model> Models::Load(const glyd::v1::LoadRequest& r, Loaded loaded) {
  GLYD_RETURN_IF_ERROR(CheckModelName(r.name()));
  GLYD_ASSIGN_OR_RETURN(const RootedPath path, roots_->Resolve(r.path(), /*to_write=*/false));
  ServedDevice* device = PickDevice(r.device());
  if (device == nullptr) {
    std::vector<std::string> names;
    for (const ServedDevice* d : devices_) names.push_back(d->slot->name());
    return WithReason(
        absl::NotFoundError(absl::StrCat("no device \"", Printable(r.device()), "\"; there is ",
                                         absl::StrJoin(names, ", "))),
        "NO_DEVICE");
  }
  if (r.transport() == glyd::v1::TRANSPORT_CUDA_IPC)
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("device ", device->slot->name(),
                                                   " shares memory by file descriptor alone")),
        "TRANSPORT");
  if (!r.layout().empty())
    return WithReason(
        absl::UnimplementedError("a load in another layout than the save's is not there yet"),
        "UNIMPLEMENTED");
  const auto load = std::make_shared<LoadCall>();
  Model out;
  {
    absl::MutexLock lock(&mu_);
    if (draining_) return StoppingError();
    const std::string shown_path = absl::StrCat(path.root, "/", path.relative);
    const auto it = entries_.find(r.name());
    if (it != entries_.end() && it->second.model.state() != glyd::v1::MODEL_STATE_FAILED) {
      Entry& there = it->second;
      if (there.model.state() == glyd::v1::MODEL_STATE_DRAINING)
        return WithReason(
            absl::AlreadyExistsError(absl::StrCat(
                "the name \"", r.name(), "\" is taken by ", there.model.path(),
                ", which drains: wait until its ", there.leases.size(),
                " leases have ended (glyd show names the holders), or choose another name")),
            "NAME_TAKEN");
      if (there.model.path() != shown_path)
        return WithReason(absl::AlreadyExistsError(absl::StrCat(
                              "the name \"", r.name(), "\" is taken by ", there.model.path(),
                              ": unload it or choose another name")),
                          "NAME_TAKEN");
      const bool verified = there.allocation != nullptr ? there.allocation->verified : there.verify;
      if (r.verify() && !verified)
        return WithReason(
            absl::AlreadyExistsError(absl::StrCat(
                "\"", r.name(), "\" is there and was loaded without verify: glyd verify ", r.name(),
                " --resident hashes what is in memory, or unload it first")),
            "NAME_TAKEN");
      if (!r.device().empty() && r.device() != "auto" && r.device() != there.model.device())
        return WithReason(absl::AlreadyExistsError(absl::StrCat(
                              "the name \"", r.name(), "\" is taken on ", there.model.device())),
                          "NAME_TAKEN");
      there.model.set_pinned(there.model.pinned() || r.pin());
      if (loaded && there.model.state() == glyd::v1::MODEL_STATE_LOADING)
        there.loaded.push_back(std::move(loaded));
      else if (loaded)
        teller_.Post([loaded, m = Snapshot(there)] { loaded(m); });
      return Snapshot(there);
    }
    Entry& e = entries_[r.name()] = Entry();
    e.serial = load->serial = next_id_++;
    e.model.set_name(r.name());
    e.model.set_state(glyd::v1::MODEL_STATE_LOADING);
    e.model.set_path(shown_path);
    e.model.set_device(device->slot->name());
    e.model.set_transport(glyd::v1::TRANSPORT_FD);
    e.model.set_pinned(r.pin());
    e.verify = r.verify();
    e.last_used = absl::Now();
    e.loading = load->ongoing;
    if (loaded) e.loaded.push_back(std::move(loaded));
    load->name = r.name();
    load->allocation_id = next_id_++;
    load->device = device;
    load->verify = r.verify();
    Tell(e, ModelEvent::KIND_CHANGED);
    out = Snapshot(e);
  }
  ToWorker m;
  m.mutable_load()->set_model_id(load->allocation_id);
  m.mutable_load()->set_root_name(path.root);
  m.mutable_load()->set_relative(path.relative);
  m.mutable_load()->set_verify(r.verify());
  m.mutable_load()->set_label(r.name());
  device->slot->Call(
      std::move(m), {path.fd},
      [this, load](const FromWorker& answer, std::vector<UniqueFd> fds) {
        OnLoad(load, answer, std::move(fds));
      },
      load->ongoing);
  return out;
}

void Models::OnLoad(const std::shared_ptr<LoadCall>& load, const FromWorker& m,
                    std::vector<UniqueFd> fds) {
  switch (m.kind_case()) {
    case FromWorker::kReserve: {
      ToWorker answer;
      answer.mutable_reserved()->set_answer(Admit(*load, m.reserve())
                                                ? worker::v1::Reserved::ANSWER_GO
                                                : worker::v1::Reserved::ANSWER_STOP);
      load->ongoing->Send(std::move(answer));
      return;
    }
    case FromWorker::kProgress: {
      absl::MutexLock lock(&mu_);
      Entry* e = Find(*load);
      if (e == nullptr) return;
      e->model.set_load_bytes_done(m.progress().bytes_done());
      e->model.set_load_bytes_total(m.progress().bytes_total());
      Tell(*e, ModelEvent::KIND_CHANGED);
      return;
    }
    case FromWorker::kDone:
      return Finish(*load, m.done(), std::move(fds));
    case FromWorker::kError:
      return Fail(*load, ToStatus(m.error()));
    default:
      return;
  }
}

// true: the worker may allocate. false: the load is settled here, for better or worse.
bool Models::Admit(LoadCall& load, const worker::v1::Reserve& want) {
  Garbage garbage;  // freed after the lock
  absl::MutexLock lock(&mu_);
  Entry* e = Find(load);
  if (e == nullptr || draining_) return false;
  load.digest = want.manifest_sha256();
  load.files = want.files_sha256();
  for (auto& [id, weak] : allocations_) {
    const auto a = weak.lock();
    if (a == nullptr || a->device != load.device ||
        a->facts.manifest_sha256() != absl::BytesToHexString(load.digest) ||
        (load.verify && !a->verified))
      continue;
    // The manifest says what the bytes should be. Only a block whose bytes were hashed, or came
    // from these very files, is what this load would make.
    if (!a->verified && a->files_sha256 != load.files) continue;
    load.settled = true;
    e->allocation = a;
    Settle(*e, glyd::v1::MODEL_STATE_READY);
    Log(LogLevel::kInfo, "model ready", {{"name", load.name}, {"shares", a->id}});
    return false;
  }
  if (!MakeRoom(load, want.allocation_bytes(), &garbage)) return false;
  load.taken = want.allocation_bytes();
  e->model.set_load_bytes_total(want.packed_bytes());
  return true;
}

bool Models::MakeRoom(LoadCall& load, uint64_t bytes, Garbage* garbage) {
  MemoryBudget& budget = load.device->budget;
  if (budget.Take(bytes)) return true;
  // Blocks that go when their names do: not pinned, not leased, by whatever name.
  std::map<uint64_t, std::pair<absl::Time, std::vector<std::string>>> idle;
  std::vector<uint64_t> kept;
  for (const auto& [name, e] : entries_) {
    if (e.allocation == nullptr || e.allocation->device != load.device) continue;
    const uint64_t id = e.allocation->id;
    if (e.model.pinned() || !e.leases.empty()) kept.push_back(id);
    auto& [used, names] = idle[id];
    used = std::max(names.empty() ? absl::InfinitePast() : used, e.last_used);
    names.push_back(name);
  }
  for (const uint64_t id : kept) idle.erase(id);
  uint64_t evictable = 0;
  std::vector<std::pair<absl::Time, uint64_t>> order;
  for (const auto& [id, of] : idle) {
    // A call in flight holds its block for a moment longer than its name.
    evictable += entries_[of.second.front()].allocation->bytes;
    order.emplace_back(of.first, id);
  }
  const uint64_t free = budget.free();
  if (bytes > free + evictable) {
    SettleFailed(
        load, absl::StrFormat("does not fit on %s: %d bytes asked, %d free, %d evictable, limit %d",
                              load.device->slot->name(), bytes, free, evictable, budget.limit()));
    return false;
  }
  std::sort(order.begin(), order.end());
  for (const auto& [used, id] : order) {
    for (const std::string& name : idle[id].second) {
      Log(LogLevel::kInfo, "model evicted", {{"name", name}, {"for", load.name}});
      Erase(name, garbage);
      ++evictions_;
    }
    // The last reference: the block's bytes come back now, its pages a little later.
    garbage->clear();
    if (budget.Take(bytes)) return true;
  }
  SettleFailed(
      load,
      "does not fit yet: memory of evicted models is still in use by calls in flight; try again");
  return false;
}

void Models::SettleFailed(LoadCall& load, absl::string_view why) {
  Entry* e = Find(load);
  load.settled = true;
  e->model.set_error(std::string(why));
  Settle(*e, glyd::v1::MODEL_STATE_FAILED);
}

std::shared_ptr<Allocation> Models::NewAllocation(const LoadCall& load) {
  auto a = std::make_shared<Allocation>();
  a->id = load.allocation_id;
  a->device = load.device;
  a->bytes = load.taken;
  a->verified = load.verify;
  a->files_sha256 = load.files;
  a->on_free = [this](Allocation* gone) {
    gone->device->budget.Give(gone->bytes);
    // Unmapping and closing many gigabytes takes its time.
    freer_.Post([slot = gone->device->slot.get(), id = gone->id, memory = std::move(gone->memory),
                 table = std::move(gone->table)]() mutable {
      ToWorker m;
      m.mutable_free_model()->set_model_id(id);
      slot->Tell(std::move(m));
      memory.reset();
      table.reset();
    });
  };
  return a;
}

void Models::Finish(LoadCall& load, const worker::v1::Done& done, std::vector<UniqueFd> fds) {
  if (fds.size() != 2) return Fail(load, absl::InternalError("the worker sent no memory"));
  std::shared_ptr<Allocation> a = NewAllocation(load);
  load.taken = 0;
  a->table_bytes = done.table_bytes();
  a->memory = std::make_shared<const UniqueFd>(std::move(fds[0]));
  a->table = std::make_shared<const UniqueFd>(std::move(fds[1]));
  const auto table = a->ReadTable();
  if (!table.ok()) return Fail(load, table.status());
  Model& f = a->facts;
  f.set_format(table->format());
  f.set_layout(table->layout());
  f.set_source_repo(table->source_repo());
  f.set_source_revision(table->source_revision());
  f.set_manifest_sha256(absl::BytesToHexString(load.digest));
  f.set_packed_bytes(done.packed_bytes());
  f.set_allocation_bytes(a->bytes);
  f.set_bf16_bytes(table->bf16_bytes());
  f.set_packs(table->packs_size());
  f.set_tensors(done.tensors());
  f.set_allocation_id(a->id);
  struct stat st;
  if (::fstat(a->memory->get(), &st) == 0) f.set_memory_inode(st.st_ino);
  absl::MutexLock lock(&mu_);
  Entry* e = Find(load);
  if (e == nullptr) return;  // unloaded meanwhile: the block goes with `a`
  load.settled = true;
  allocations_[a->id] = a;
  e->allocation = std::move(a);
  e->model.set_load_bytes_done(e->model.load_bytes_total());
  Settle(*e, glyd::v1::MODEL_STATE_READY);
  Log(LogLevel::kInfo, "model ready",
      {{"name", load.name}, {"bytes", f.allocation_bytes()}, {"packs", f.packs()}});
}

void Models::Fail(LoadCall& load, const absl::Status& why) {
  if (load.taken > 0) load.device->budget.Give(load.taken);
  load.taken = 0;
  absl::MutexLock lock(&mu_);
  if (Find(load) == nullptr || load.settled) return;
  SettleFailed(load, why.message());
  Log(LogLevel::kWarning, "load failed", {{"name", load.name}, {"error", why.message()}});
}

}  // namespace glyd
