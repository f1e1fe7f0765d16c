#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/cpus.h"

namespace glyd {

int ThreadCount(int threads) { return threads > 0 ? threads : AvailableCpus(); }

absl::Status ParallelFor(size_t n, int threads, const Progress& progress,
                         const std::function<absl::Status(size_t, size_t)>& f) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  absl::Mutex mutex;
  absl::Status failed;
  size_t failed_at = n;
  const auto work = [&](size_t worker) {
    for (;;) {
      if (stop.load(std::memory_order_relaxed)) return;
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      const absl::Status s =
          progress.cancelled() ? absl::CancelledError("cancelled") : f(worker, i);
      if (s.ok()) continue;
      stop.store(true, std::memory_order_relaxed);
      absl::MutexLock lock(&mutex);
      if (i < failed_at) {
        failed_at = i;
        failed = s;
      }
    }
  };
  const size_t count = std::min<size_t>(static_cast<size_t>(ThreadCount(threads)), n);
  std::vector<std::thread> others;
  try {
    for (size_t w = 1; w < count; ++w) others.emplace_back(work, w);
  } catch (const std::exception&) {
    // No more threads are to be had: those there are do the work.
  }
  work(0);
  for (std::thread& t : others) t.join();
  return failed;
}

}  // namespace glyd
