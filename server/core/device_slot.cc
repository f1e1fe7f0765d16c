#include "server/core/device_slot.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/core/config.h"
#include "server/core/errors.h"
#include "server/core/log.h"

namespace glyd {
namespace {

using worker::v1::FromWorker;
using worker::v1::ToWorker;

constexpr size_t kMaxWaiting = 10000;
constexpr int kStartsBeforeDown = 5;

absl::Status DownError(absl::string_view text) {
  return WithReason(absl::UnavailableError(text), "DEVICE_DOWN");
}

}  // namespace

void DeviceSlot::Ongoing::Send(ToWorker message) {
  absl::MutexLock lock(&mu_);
  if (const auto child = child_.lock()) child->Send(call_, std::move(message));
}

void DeviceSlot::Ongoing::Cancel() {
  ToWorker m;
  m.mutable_cancel();
  Send(std::move(m));
}

DeviceSlot::DeviceSlot(Options options) : options_(std::move(options)) {}

DeviceSlot::~DeviceSlot() { Stop(); }

absl::Status DeviceSlot::Start(Restore restore) {
  restore_ = std::move(restore);
  GLYD_RETURN_IF_ERROR(StartChild());
  supervisor_ = std::thread([this] { Supervise(); });
  return absl::OkStatus();
}

void DeviceSlot::Stop() {
  std::vector<Waiting> waiting;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    waiting.swap(waiting_);
  }
  for (const Waiting& w : waiting) w.event(ErrorMessage(StoppingError()), {});
  if (supervisor_.joinable()) supervisor_.join();
  std::shared_ptr<Child> child;
  {
    absl::MutexLock lock(&mu_);
    child.swap(child_);
    state_.pid = 0;
  }
  if (child != nullptr) child->End();
}

uint64_t DeviceSlot::budget_bytes() const {
  absl::MutexLock lock(&mu_);
  const auto bytes = ParseBudget(options_.budget, state_.facts.total_bytes());
  return bytes.ok() ? *bytes : 0;
}

DeviceSlot::State DeviceSlot::state() const {
  absl::MutexLock lock(&mu_);
  return state_;
}

absl::Status DeviceSlot::StartChild() {
  struct Hello {
    absl::Mutex mu;
    bool heard = false, ended = false;
    worker::v1::Started facts;
  };
  const auto hello = std::make_shared<Hello>();
  std::vector<std::string> arguments = {"device", "--device", options_.device, "--threads",
                                        absl::StrCat(options_.threads)};
  for (const std::string& directory : options_.read)
    arguments.insert(arguments.end(), {"--read", directory});
  GLYD_ASSIGN_OR_RETURN(
      std::shared_ptr<Child> child,
      Child::Spawn(options_.program, arguments, [this, hello](const std::string& how) {
        {
          absl::MutexLock lock(&hello->mu);
          hello->ended = true;
        }
        absl::MutexLock lock(&mu_);
        Log(stopping_ ? LogLevel::kInfo : LogLevel::kWarning, "worker ended",
            {{"device", options_.device}, {"how", how}});
        state_.error = absl::StrCat("the worker ", how);
        child_ended_ = true;
      }));
  // A first ping: its answer is what the worker says of the device.
  ToWorker ping;
  ping.mutable_ping();
  child->Call(ping, {}, [hello](const FromWorker& m, std::vector<UniqueFd>) {
    absl::MutexLock lock(&hello->mu);
    if (m.has_started()) hello->facts = m.started();
    if (m.has_done()) hello->heard = true;
    if (m.has_error()) hello->ended = true;
  });
  std::string failure;
  {
    absl::MutexLock lock(&hello->mu);
    const auto settled = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return hello->heard || hello->ended;
    };
    if (!hello->mu.AwaitWithTimeout(absl::Condition(&settled), absl::Seconds(20)))
      failure = "did not answer for 20 s";
    else if (!hello->heard)
      failure = "ended at start";
  }
  if (!failure.empty()) {
    child.reset();
    absl::MutexLock lock(&mu_);
    child_ended_ = false;
    return absl::UnavailableError(absl::StrCat("device ", options_.device, ": the worker ", failure,
                                               " (", options_.program, ")"));
  }
  {
    absl::MutexLock lock(&mu_);
    state_.facts = hello->facts;
  }
  // Told before anything else, in order: the models and arenas that glydd holds.
  for (Told& t : restore_())
    child->Call(std::move(t.message), std::move(t.fds),
                [](const FromWorker& m, std::vector<UniqueFd>) {
                  if (m.has_error())
                    Log(LogLevel::kError, "import failed", {{"error", m.error().message()}});
                });
  std::vector<Waiting> waiting;
  {
    absl::MutexLock lock(&mu_);
    waiting.swap(waiting_);
    state_.pid = child->pid();
    if (!child_ended_) state_.error.clear();
    down_ = false;
    child_ = child;
  }
  for (Waiting& w : waiting) Begin(child, std::move(w));
  return absl::OkStatus();
}

void DeviceSlot::Begin(const std::shared_ptr<Child>& child, Waiting call) {
  if (call.ongoing == nullptr) {
    child->Call(std::move(call.message), std::move(call.fds), std::move(call.event));
    return;
  }
  // Held while the call starts, so that a Send on its first answer finds the call's number.
  absl::MutexLock lock(&call.ongoing->mu_);
  call.ongoing->child_ = child;
  call.ongoing->call_ =
      child->Call(std::move(call.message), std::move(call.fds), std::move(call.event));
}

void DeviceSlot::LookAfter(Child& child) {
  ToWorker ping;
  ping.mutable_ping();
  child.Call(ping, {}, [](const FromWorker&, std::vector<UniqueFd>) {});
  if (absl::Now() - child.last_heard() > options_.hang) {
    Log(LogLevel::kError, "worker hangs, killed", {{"device", options_.device}});
    child.Kill();
  }
}

void DeviceSlot::Supervise() {
  for (;;) {
    std::shared_ptr<Child> child;
    bool ended;
    {
      absl::MutexLock lock(&mu_);
      const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || child_ended_;
      };
      mu_.AwaitWithTimeout(absl::Condition(&wake), options_.hang / 2);
      if (stopping_) return;
      child = child_;
      ended = child_ended_;
      if (ended) {
        child_ = nullptr;
        child_ended_ = false;
        state_.pid = 0;
        ++state_.restarts;
      }
    }
    if (!ended) {
      LookAfter(*child);
      continue;
    }
    if (options_.on_change) options_.on_change();
    child->End();
    child.reset();
    if (!Restart()) return;
    if (options_.on_change) options_.on_change();
  }
}

// false: stopping.
bool DeviceSlot::Restart() {
  if (absl::Now() - started_ > absl::Seconds(10)) failures_ = 0;
  for (;; ++failures_) {
    // At once the first time, then 100 ms, doubling to 10 s, for a worker that ends again and
    // again.
    const absl::Duration pause = failures_ == 0
                                     ? absl::ZeroDuration()
                                     : absl::Milliseconds(100) * (1 << std::min(failures_ - 1, 7));
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), std::min(pause, absl::Seconds(10))))
        return false;
    }
    const absl::Status s = StartChild();
    if (s.ok()) break;
    Log(LogLevel::kError, "worker does not start",
        {{"device", options_.device}, {"error", s.message()}});
    std::vector<Waiting> waiting;
    {
      absl::MutexLock lock(&mu_);
      // Where the program lies is the operator's to know.
      state_.error = "the worker does not start; the daemon's log says why";
      down_ = failures_ + 1 >= kStartsBeforeDown;
      if (down_) waiting.swap(waiting_);
    }
    for (const Waiting& w : waiting)
      w.event(ErrorMessage(DownError("the device's worker does not start")), {});
  }
  ++failures_;
  started_ = absl::Now();
  Log(LogLevel::kInfo, "worker started again", {{"device", options_.device}, {"pid", state().pid}});
  return true;
}

void DeviceSlot::Call(ToWorker message, std::vector<SharedFd> fds, Child::Event event,
                      std::shared_ptr<Ongoing> ongoing) {
  std::shared_ptr<Child> child;
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      refused = StoppingError();
    } else if (child_ != nullptr && !child_ended_) {
      child = child_;
    } else if (down_ || waiting_.size() >= kMaxWaiting) {
      refused = DownError("the device's worker is down");
    } else {
      waiting_.push_back(
          {std::move(message), std::move(fds), std::move(event), std::move(ongoing)});
      return;
    }
  }
  if (child == nullptr)
    event(ErrorMessage(refused), {});
  else
    Begin(child, {std::move(message), std::move(fds), std::move(event), std::move(ongoing)});
}

void DeviceSlot::Tell(ToWorker message) {
  Call(std::move(message), {}, [](const FromWorker&, std::vector<UniqueFd>) {});
}

}  // namespace glyd
