#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/host/target.h"
#include "server/core/task_thread.h"
#include "server/worker/channel.h"
#include "server/worker/operands.h"
#include "server/worker/resident.h"

namespace glyd {
namespace {

using worker::v1::Done;
using worker::v1::FromWorker;
using worker::v1::ToWorker;

// A load or a verification in its own thread.
struct LongCall {
  absl::Mutex mu;
  bool answered ABSL_GUARDED_BY(mu) = false;
  bool go ABSL_GUARDED_BY(mu) = false;
  std::atomic<bool> cancelled = false;
};

class DeviceWorker {
 public:
  DeviceWorker(std::unique_ptr<Device> device, int threads, std::string sandbox, int socket)
      : device_(std::move(device)),
        threads_(threads),
        sandbox_(std::move(sandbox)),
        channel_(socket) {}

  int Run() {
    ToWorker m;
    std::vector<UniqueFd> fds;
    while (channel_.Receive(&m, &fds)) {
      Handle(m, std::move(fds));
      fds.clear();
    }
    {
      absl::MutexLock lock(&mu_);
      for (auto& [call, state] : long_calls_) Cancel(*state);
    }
    products_.Stop();
    freer_.Stop();
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return long_calls_.empty(); };
    mu_.Await(absl::Condition(&idle));
    return 0;
  }

 private:
  static void Cancel(LongCall& c) {
    c.cancelled = true;
    absl::MutexLock lock(&c.mu);
    c.answered = true;
  }

  void Handle(const ToWorker& m, std::vector<UniqueFd> fds) {
    switch (m.kind_case()) {
      case ToWorker::kPing:
        return Ping(m.call());
      case ToWorker::kLoad:
        return StartLoad(m, std::move(fds));
      case ToWorker::kReserved:
      case ToWorker::kCancel:
        return Answer(m);
      case ToWorker::kImportModel:
        return Reply(m.call(), ImportModel(m, std::move(fds)));
      case ToWorker::kFreeModel: {
        // Unmapping takes long for large blocks: in the way of neither messages nor products.
        freer_.Post([this, gone = Take(m.free_model().model_id()), call = m.call()]() mutable {
          gone.reset();
          channel_.SendDone(call, {});
        });
        return;
      }
      case ToWorker::kCreateArena:
        // Finding pages takes its time too.
        return StartLong(m.call(), [this, m](LongCall&) { CreateArena(m); });
      case ToWorker::kImportArena:
        return Reply(m.call(), ImportArena(m.import_arena(), std::move(fds)));
      case ToWorker::kFreeArena: {
        std::shared_ptr<Memory> gone;
        {
          absl::MutexLock lock(&mu_);
          const auto it = arenas_.find(m.free_arena().arena_id());
          if (it != arenas_.end()) gone = std::move(it->second);
          arenas_.erase(m.free_arena().arena_id());
        }
        freer_.Post([this, gone = std::move(gone), call = m.call()]() mutable {
          gone.reset();
          channel_.SendDone(call, {});
        });
        return;
      }
      case ToWorker::kProduct:
        products_.Post([this, call = m.call(), p = m.product()] {
          Done done;
          const absl::Status s = Multiply(p, &done);
          if (s.ok())
            channel_.SendDone(call, std::move(done));
          else
            channel_.SendError(call, s);
        });
        return;
      case ToWorker::kVerifyModel:
        return StartVerify(m);
      default:
        return channel_.SendError(m.call(),
                                  absl::UnimplementedError("this worker serves a device"));
    }
  }

  void Reply(uint64_t call, const absl::Status& s) {
    if (s.ok())
      channel_.SendDone(call, {});
    else
      channel_.SendError(call, s);
  }

  void Ping(uint64_t call) {
    const DeviceInfo& info = device_->info();
    FromWorker m;
    m.mutable_started()->set_device(info.name);
    m.mutable_started()->set_kind(info.kind);
    m.mutable_started()->set_model(info.model);
    m.mutable_started()->set_uuid(info.uuid);
    m.mutable_started()->set_total_bytes(info.total_bytes);
    m.mutable_started()->set_sandbox(sandbox_);
    if (info.kind == "host")
      m.mutable_started()->add_linear_targets(std::string(HostTargetName(ChosenTarget())));
    channel_.Send(call, std::move(m));
    channel_.SendDone(call, {});
  }

  std::shared_ptr<ResidentModel> FindModel(uint64_t id) {
    absl::MutexLock lock(&mu_);
    const auto it = models_.find(id);
    return it == models_.end() ? nullptr : it->second;
  }
  std::shared_ptr<ResidentModel> Take(uint64_t id) {
    absl::MutexLock lock(&mu_);
    const auto it = models_.find(id);
    if (it == models_.end()) return nullptr;
    std::shared_ptr<ResidentModel> out = std::move(it->second);
    models_.erase(it);
    return out;
  }

  // Runs `work` in a thread of its own, known by its call until it returns.
  void StartLong(uint64_t call, std::function<void(LongCall&)> work) {
    auto state = std::make_shared<LongCall>();
    {
      absl::MutexLock lock(&mu_);
      long_calls_[call] = state;
    }
    std::thread([this, call, state, work = std::move(work)] {
      work(*state);
      absl::MutexLock lock(&mu_);
      long_calls_.erase(call);
    }).detach();
  }

  void Answer(const ToWorker& m) {
    std::shared_ptr<LongCall> state;
    {
      absl::MutexLock lock(&mu_);
      const auto it = long_calls_.find(m.call());
      if (it == long_calls_.end()) return;
      state = it->second;
    }
    if (m.has_cancel()) return Cancel(*state);
    absl::MutexLock lock(&state->mu);
    state->answered = true;
    state->go = m.reserved().answer() == worker::v1::Reserved::ANSWER_GO;
  }

  void StartLoad(const ToWorker& m, std::vector<UniqueFd> fds) {
    if (fds.size() != 1)
      return channel_.SendError(m.call(), absl::InternalError("a load without its root"));
    auto root = std::make_shared<const UniqueFd>(std::move(fds[0]));
    StartLong(m.call(),
              [this, call = m.call(), load = m.load(), root = std::move(root)](LongCall& state) {
                Done done;
                std::vector<UniqueFd> out;
                const absl::Status s = Load(call, load, root, state, &done, &out);
                if (!s.ok()) return channel_.SendError(call, s);
                channel_.SendDone(call, std::move(done), {out[0].get(), out[1].get()});
              });
  }

  absl::Status Load(uint64_t call, const worker::v1::LoadModel& load,
                    const std::shared_ptr<const UniqueFd>& root, LongCall& state, Done* done,
                    std::vector<UniqueFd>* out) {
    CallProgress progress(&channel_, call, [&state] { return state.cancelled.load(); });
    GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::OpenBeneath(root, load.root_name(), load.relative()));
    uint64_t packed_bytes = 0;
    GLYD_ASSIGN_OR_RETURN(std::shared_ptr<ResidentModel> model,
                          ResidentModel::Load(
                              *device_, dir, load.label(), load.verify(), threads_,
                              [&](const ResidentModel::Size& size) {
                                packed_bytes = size.packed_bytes;
                                FromWorker ask;
                                ask.mutable_reserve()->set_allocation_bytes(size.allocation_bytes);
                                ask.mutable_reserve()->set_packed_bytes(size.packed_bytes);
                                ask.mutable_reserve()->set_manifest_sha256(size.manifest_sha256);
                                ask.mutable_reserve()->set_files_sha256(size.files_sha256);
                                channel_.Send(call, std::move(ask));
                                absl::MutexLock lock(&state.mu);
                                state.mu.Await(absl::Condition(&state.answered));
                                return state.go && !state.cancelled;
                              },
                              progress));
    GLYD_ASSIGN_OR_RETURN(ExportedMemory memory, model->memory().Export());
    uint64_t table_bytes = 0;
    GLYD_ASSIGN_OR_RETURN(UniqueFd table, model->ExportTable(&table_bytes));
    done->set_allocation_bytes(model->memory().bytes());
    done->set_packed_bytes(packed_bytes);
    done->set_table_bytes(table_bytes);
    done->set_tensors(model->tensor_count());
    out->push_back(std::move(memory.fd));
    out->push_back(std::move(table));
    absl::MutexLock lock(&mu_);
    models_[load.model_id()] = std::move(model);
    return absl::OkStatus();
  }

  // On the receiving thread: calls for the model wait behind it. Its progress tells that this
  // worker lives.
  absl::Status ImportModel(const ToWorker& m, std::vector<UniqueFd> fds) {
    if (fds.size() != 2) return absl::InternalError("an import without its memory");
    CallProgress progress(&channel_, m.call(), [] { return false; });
    GLYD_ASSIGN_OR_RETURN(
        std::shared_ptr<ResidentModel> model,
        ResidentModel::Import(*device_, std::move(fds[0]), std::move(fds[1]), threads_, progress));
    absl::MutexLock lock(&mu_);
    models_[m.import_model().model_id()] = std::move(model);
    return absl::OkStatus();
  }

  void StartVerify(const ToWorker& m) {
    StartLong(m.call(), [this, call = m.call(), id = m.verify_model().model_id()](LongCall& state) {
      const std::shared_ptr<ResidentModel> model = FindModel(id);
      if (model == nullptr)
        return channel_.SendError(call, absl::NotFoundError("the worker lacks the model"));
      CallProgress progress(&channel_, call, [&state] { return state.cancelled.load(); });
      auto bad = model->Verify(*device_, threads_, progress);
      if (!bad.ok()) return channel_.SendError(call, bad.status());
      Done done;
      for (std::string& name : *bad) done.add_bad_tensors(std::move(name));
      done.set_tensors(model->tensor_count());
      channel_.SendDone(call, std::move(done));
    });
  }

  void CreateArena(const ToWorker& m) {
    auto memory = device_->Allocate(m.create_arena().bytes(), "arena");
    if (!memory.ok()) return channel_.SendError(m.call(), memory.status());
    const auto exported = (*memory)->Export();
    if (!exported.ok()) return channel_.SendError(m.call(), exported.status());
    {
      absl::MutexLock lock(&mu_);
      arenas_[m.create_arena().arena_id()] = *std::move(memory);
    }
    Done done;
    done.set_allocation_bytes(exported->bytes);
    channel_.SendDone(m.call(), std::move(done), {exported->fd.get()});
  }

  absl::Status ImportArena(const worker::v1::ImportArena& import, std::vector<UniqueFd> fds) {
    if (fds.size() != 1) return absl::InternalError("an import without its memory");
    ExportedMemory exported;
    exported.fd = std::move(fds[0]);
    exported.bytes = import.bytes();
    GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory,
                          device_->Import(std::move(exported), Access::kReadWrite));
    absl::MutexLock lock(&mu_);
    arenas_[import.arena_id()] = std::move(memory);
    return absl::OkStatus();
  }

  // `bytes` at `offset` of an arena.
  absl::StatusOr<std::shared_ptr<Memory>> Range(uint64_t arena, uint64_t offset, uint64_t bytes,
                                                absl::string_view what) {
    absl::MutexLock lock(&mu_);
    const auto it = arenas_.find(arena);
    if (it == arenas_.end()) return absl::NotFoundError("the worker lacks the arena");
    const uint64_t size = it->second->bytes();
    if (offset % 16 != 0 || offset > size || bytes > size - offset)
      return WithReason(
          absl::InvalidArgumentError(
              absl::StrCat(what, " takes ", bytes, " bytes at ", offset, ", its arena has ", size)),
          "BAD_LINEAR");
    return it->second;
  }

  absl::Status Multiply(const worker::v1::Product& p, Done* done) {
    const std::shared_ptr<ResidentModel> model = FindModel(p.model_id());
    if (model == nullptr) return absl::UnavailableError("the worker lacks the model");
    LinearArgs args;
    GLYD_ASSIGN_OR_RETURN(args.pack, model->FindPack(p.pack()));
    args.m = p.m();
    const uint64_t rows = args.pack.meta.rows, cols = args.pack.meta.cols;
    uint64_t x_bytes, y_bytes;
    if (!CheckedMul(p.m(), cols * sizeof(uint16_t), &x_bytes) ||
        !CheckedMul(p.m(), rows * sizeof(uint16_t), &y_bytes))
      return WithReason(absl::InvalidArgumentError(absl::StrCat("m is ", p.m(), ": too large")),
                        "BAD_LINEAR");
    std::shared_ptr<Memory> x, y;
    std::vector<uint16_t> x_copy, y_inline;
    Operands operands(*device_);
    if (p.x_arena() != 0) {
      GLYD_ASSIGN_OR_RETURN(x, Range(p.x_arena(), p.x_offset(), x_bytes, "x"));
      args.x = reinterpret_cast<const uint16_t*>(x->data() + p.x_offset());
    } else {
      if (p.x_inline().size() != x_bytes)
        return WithReason(
            absl::InvalidArgumentError(absl::StrCat("x is ", p.x_inline().size(), " bytes, [",
                                                    p.m(), ", ", cols, "] takes ", x_bytes)),
            "BAD_LINEAR");
      x_copy.resize(p.m() * cols);
      std::memcpy(x_copy.data(), p.x_inline().data(), x_bytes);
      GLYD_ASSIGN_OR_RETURN(args.x, operands.In(x_copy.data(), x_copy.size()));
    }
    if (p.y_arena() != 0) {
      GLYD_ASSIGN_OR_RETURN(y, Range(p.y_arena(), p.y_offset(), y_bytes, "y"));
      if (p.x_arena() == p.y_arena() && p.x_offset() < p.y_offset() + y_bytes &&
          p.y_offset() < p.x_offset() + x_bytes)
        return WithReason(absl::InvalidArgumentError(absl::StrCat(
                              "x at ", p.x_offset(), " (", x_bytes, " bytes) and y at ",
                              p.y_offset(), " (", y_bytes, " bytes) overlap")),
                          "BAD_LINEAR");
      args.y = reinterpret_cast<uint16_t*>(y->data() + p.y_offset());
    } else {
      constexpr uint64_t kMaxInline = uint64_t{1} << 20;
      if (y_bytes > kMaxInline)
        return WithReason(
            absl::InvalidArgumentError(absl::StrCat("y takes ", y_bytes, " bytes, at most ",
                                                    kMaxInline, " inline: use an arena")),
            "BAD_LINEAR");
      y_inline.resize(p.m() * rows);
      GLYD_ASSIGN_OR_RETURN(args.y, operands.Out(y_inline.data(), y_inline.size()));
    }
    if (p.bias()) {
      GLYD_ASSIGN_OR_RETURN(const uint16_t* bias, model->FindBias(*device_, p.pack()));
      GLYD_ASSIGN_OR_RETURN(args.bias, operands.In(bias, rows));
    }
    const absl::Time start = absl::Now();
    GLYD_RETURN_IF_ERROR(device_->Linear(args));
    GLYD_RETURN_IF_ERROR(operands.Collect());
    done->set_nanoseconds(absl::ToInt64Nanoseconds(absl::Now() - start));
    if (y == nullptr)
      done->set_y_inline(std::string(reinterpret_cast<const char*>(y_inline.data()), y_bytes));
    done->set_rows(p.m());
    done->set_cols(rows);
    return absl::OkStatus();
  }

  const std::unique_ptr<Device> device_;
  const int threads_;
  const std::string sandbox_;
  Channel channel_;
  absl::Mutex mu_;
  std::map<uint64_t, std::shared_ptr<ResidentModel>> models_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<Memory>> arenas_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<LongCall>> long_calls_ ABSL_GUARDED_BY(mu_);
  TaskThread products_;  // one at a time: a product uses every thread
  TaskThread freer_;
};

}  // namespace

int RunDeviceWorker(const std::string& name, int threads, const std::string& sandbox, int socket) {
  auto device = CreateDevice(name, threads);
  Channel channel(socket);
  if (!device.ok()) {
    channel.SendError(1, device.status());
    return 70;
  }
  return DeviceWorker(*std::move(device), threads, sandbox, socket).Run();
}

}  // namespace glyd
