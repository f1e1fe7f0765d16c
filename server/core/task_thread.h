#ifndef GLYD_SERVER_CORE_TASK_THREAD_H_
#define GLYD_SERVER_CORE_TASK_THREAD_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace glyd {

// Runs what it is given, one after the other, on a thread of its own: for work that must not run
// where it is found to be due (freeing memory on an admission's path, telling watchers under a
// lock). Thread-safe.
class TaskThread {
 public:
  TaskThread() : thread_([this] { Run(); }) {}
  ~TaskThread() { Stop(); }

  // false: it was dropped, for the thread ends.
  bool Post(std::function<void()> task) {
    absl::MutexLock lock(&mu_);
    if (!stopping_) tasks_.push_back(std::move(task));
    return !stopping_;
  }
  // Runs what was posted, then ends; later tasks are dropped.
  void Stop() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mu_);
        const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return stopping_ || !tasks_.empty();
        };
        mu_.Await(absl::Condition(&ready));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  absl::Mutex mu_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_TASK_THREAD_H_
