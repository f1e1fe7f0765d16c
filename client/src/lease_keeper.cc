#include "client/src/lease_keeper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace glyd::internal {
namespace {

// A daemon that restarts is back within a second or loads for minutes: asked for at this pace, for
// a lease within a second of its being back.
constexpr int kLeastPauseMs = 50, kMostPauseMs = 500;

bool HasEnded(const Session& session) {
  pollfd p = {session.poll_fd(), POLLRDHUP, 0};
  return ::poll(&p, 1, 0) > 0;
}

}  // namespace

LeaseKeeper::LeaseKeeper(Renew renew)
    : renew_(std::move(renew)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

LeaseKeeper::~LeaseKeeper() {
  std::thread thread;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  Wake();
  if (thread.joinable()) thread.join();
}

void LeaseKeeper::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void LeaseKeeper::Keep(const std::shared_ptr<HeldLease>& lease) {
  {
    absl::MutexLock lock(&mu_);
    std::erase_if(leases_, [](const auto& l) { return l.expired(); });
    leases_.push_back(lease);
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }
  Wake();
}

bool LeaseKeeper::RenewSome(std::vector<std::shared_ptr<Session>>* watched) {
  std::vector<std::shared_ptr<HeldLease>> leases;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& weak : leases_)
      if (auto lease = weak.lock()) leases.push_back(std::move(lease));
  }
  bool all = true;
  for (const std::shared_ptr<HeldLease>& lease : leases) {
    std::shared_ptr<Session> session;
    {
      absl::MutexLock lock(&lease->mu);
      if (lease->id.empty() || lease->lost) continue;
      session = lease->session;
      if (HasEnded(*session))
        lease->status = absl::UnavailableError("the daemon has gone; the lease is being renewed");
    }
    if (HasEnded(*session)) {
      {
        absl::MutexLock lock(&mu_);
        if (stopping_) return true;
      }
      const absl::Status s = renew_(*lease);
      absl::MutexLock lock(&lease->mu);
      if (absl::IsFailedPrecondition(s)) {
        lease->lost = true;
        lease->status = s;
        continue;
      }
      all &= s.ok();
      session = lease->session;
      if (session == nullptr) continue;  // released meanwhile
    }
    if (std::find(watched->begin(), watched->end(), session) == watched->end() &&
        !HasEnded(*session))
      watched->push_back(std::move(session));
  }
  return all;
}

void LeaseKeeper::Run() {
  int pause = kLeastPauseMs;
  for (;;) {
    std::vector<std::shared_ptr<Session>> watched;
    const bool all = RenewSome(&watched);
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) return;
    }
    pause = all ? kLeastPauseMs : std::min(2 * pause, kMostPauseMs);
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
    for (const auto& session : watched) fds.push_back({session->poll_fd(), POLLRDHUP, 0});
    ::poll(fds.data(), fds.size(), all ? -1 : pause);
    uint64_t count;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
}

}  // namespace glyd::internal
