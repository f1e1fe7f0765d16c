#include "packer/internal/job_queue.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/parallel.h"

namespace glyd {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);  // for a stop, while waiting

}  // namespace

int WorkerCount(int threads, size_t jobs) {
  constexpr size_t kMost = kSharedBytes / (2 * kLaneBytes);
  return static_cast<int>(
      std::min({static_cast<size_t>(ThreadCount(threads)), kMost, std::max<size_t>(jobs, 1)}));
}

JobQueue::JobQueue(size_t n, std::function<uint64_t(size_t)> need)
    : n_(n), need_(std::move(need)) {}

bool JobQueue::Fits() const {
  return next_ >= n_ || held_ == 0 || held_ + need_(next_) <= kSharedBytes;
}

std::optional<size_t> JobQueue::Take(bool wait, const std::function<bool()>& stop) {
  absl::MutexLock lock(&mutex_);
  while (wait && !stop() &&
         !mutex_.AwaitWithTimeout(absl::Condition(this, &JobQueue::Fits), kLook)) {
  }
  if (next_ >= n_ || stop() || !Fits()) return std::nullopt;
  held_ += need_(next_);
  return next_++;
}

void JobQueue::Done(size_t job) {
  absl::MutexLock lock(&mutex_);
  held_ -= need_(job);
}

}  // namespace glyd
