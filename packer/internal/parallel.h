#ifndef GLYD_PACKER_INTERNAL_PARALLEL_H_
#define GLYD_PACKER_INTERNAL_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/progress.h"

namespace glyd {

// `threads` as an option says it: 0 is one a core that this process may use.
int ThreadCount(int threads);

// `f(worker, i)` for each i below n, on several threads, i rising; worker is below `threads`. Stops
// at the first failure, and with Cancelled where `progress` says so. The status is that of the
// smallest i that failed.
absl::Status ParallelFor(size_t n, int threads, const Progress& progress,
                         const std::function<absl::Status(size_t worker, size_t i)>& f);

// Memory that a worker uses again and again: fresh pages cost as much as the work on them. Not
// thread-safe.
class Scratch {
 public:
  // At least `bytes`, 64-byte aligned, content undefined; valid until the next call.
  uint8_t* Get(uint64_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  uint64_t bytes_ = 0;
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_PARALLEL_H_
