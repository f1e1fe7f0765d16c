#ifndef GLYD_SERVER_CORE_MEMORY_BUDGET_H_
#define GLYD_SERVER_CORE_MEMORY_BUDGET_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace glyd {

// The bytes that models and arenas may take on one device, and do. Thread-safe.
class MemoryBudget {
 public:
  void set_limit(uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    limit_ = bytes;
  }
  // false, with nothing taken, where it does not fit.
  [[nodiscard]] bool Take(uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    if (used_ > limit_ || bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void Give(uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    used_ -= bytes;
  }
  uint64_t used() const {
    absl::MutexLock lock(&mu_);
    return used_;
  }
  uint64_t limit() const {
    absl::MutexLock lock(&mu_);
    return limit_;
  }
  uint64_t free() const {
    absl::MutexLock lock(&mu_);
    return used_ > limit_ ? 0 : limit_ - used_;
  }

 private:
  mutable absl::Mutex mu_;
  uint64_t limit_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_MEMORY_BUDGET_H_
