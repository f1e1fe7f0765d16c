#ifndef GLYD_PACKER_INTERNAL_JOB_QUEUE_H_
#define GLYD_PACKER_INTERNAL_JOB_QUEUE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace glyd {

// What jobs may hold of memory at a time, all threads together; a larger one runs alone. With what
// else a process takes this stays below 512 MB and three times the largest matrix.
inline constexpr uint64_t kSharedBytes = 320 << 20;
// What any job takes: a piece, what becomes of it, and buffers of what is written.
inline constexpr uint64_t kLaneBytes = 8 << 20;

// Threads to use of those asked for: each with two jobs of the least size fits the budget.
int WorkerCount(int threads, size_t jobs);

// Jobs 0 to n-1, given out in rising order as far as the budget goes. Thread-safe.
class JobQueue {
 public:
  // `need(i)`: the most that job i holds. Called with a lock held.
  JobQueue(size_t n, std::function<uint64_t(size_t)> need);

  // The next job, or none: where there are no more, where `stop()` says so, and, unless `wait`,
  // where the next does not fit now. Whoever waits must hold no job.
  std::optional<size_t> Take(bool wait, const std::function<bool()>& stop);
  // After the end of a job, when its memory is free again.
  void Done(size_t job);

 private:
  bool Fits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t n_;
  const std::function<uint64_t(size_t)> need_;
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_JOB_QUEUE_H_
