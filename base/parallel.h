#ifndef GLYD_BASE_PARALLEL_H_
#define GLYD_BASE_PARALLEL_H_

#include <cstddef>
#include <functional>

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

}  // namespace glyd

#endif  // GLYD_BASE_PARALLEL_H_
