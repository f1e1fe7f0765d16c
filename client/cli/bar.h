#ifndef GLYD_CLIENT_CLI_BAR_H_
#define GLYD_CLIENT_CLI_BAR_H_

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/progress.h"

namespace glyd::cli {

// How far a piece of work is, as one line of `width` columns at most. A total of 0 is not known.
struct BarState {
  std::string phase, item;
  uint64_t done = 0, total = 0;
  double bytes_per_second = 0;
};
std::string BarLine(const BarState& state, size_t width);

// Progress on stderr: a bar that redraws itself on a terminal, a line every 5 s elsewhere, nothing
// where quiet. The line is gone from a terminal once this is destroyed. cancelled() is true once a
// signal was noted (interrupt.h). Thread-safe.
class Bar : public Progress {
 public:
  explicit Bar(bool quiet);
  ~Bar() override;

  void Phase(absl::string_view name, uint64_t total_bytes) override;
  void Advance(uint64_t bytes) override;
  void Item(absl::string_view name) override;
  void Note(absl::string_view text) override;
  bool cancelled() const override;

  // The whole state at once, from work that is done elsewhere.
  void Set(BarState state);

 private:
  void Run();
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool quiet_, terminal_;
  absl::Mutex mutex_;
  BarState state_ ABSL_GUARDED_BY(mutex_);
  bool rate_is_told_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time phase_began_ ABSL_GUARDED_BY(mutex_);
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_BAR_H_
