#include "packer/internal/hash_jobs.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

// One of a thread's two jobs.
struct Lane {
  JobMemory memory;
  Sha256 hash;
  std::unique_ptr<HashJob> job;
  HashJob::Piece piece;

  absl::Status Read() {
    GLYD_ASSIGN_OR_RETURN(piece, job->Next());
    return absl::OkStatus();
  }
  absl::Status Finish() {
    GLYD_RETURN_IF_ERROR(job->Use(piece));
    if (piece.ends_tensor)
      GLYD_RETURN_IF_ERROR(job->EndTensor(hash.Finish()));
    else if (piece.ends_job)
      hash.Finish();
    if (piece.ends_job) job.reset();
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RunHashJobs(size_t n, int threads, Progress& progress,
                         const std::function<std::unique_ptr<HashJob>(size_t, JobMemory&)>& make) {
  std::atomic<size_t> next{0};
  const auto refill = [&](Lane& lane) {
    if (lane.job != nullptr) return;
    const size_t i = next.fetch_add(1, std::memory_order_relaxed);
    if (i < n) lane.job = make(i, lane.memory);
  };
  const size_t workers = std::min<size_t>(static_cast<size_t>(ThreadCount(threads)), n);
  std::atomic<bool> stop{false};
  const auto work = [&]() -> absl::Status {
    Lane a, b;
    for (;;) {
      if (stop.load(std::memory_order_relaxed)) return absl::OkStatus();
      if (progress.cancelled()) return absl::CancelledError("cancelled");
      refill(a);
      refill(b);
      if (a.job == nullptr) std::swap(a, b);
      if (a.job == nullptr) return absl::OkStatus();
      GLYD_RETURN_IF_ERROR(a.Read());
      if (b.job == nullptr) {
        a.hash.Update(a.piece.bytes.data(), a.piece.bytes.size());
        GLYD_RETURN_IF_ERROR(a.Finish());
        continue;
      }
      GLYD_RETURN_IF_ERROR(b.Read());
      Sha256::UpdatePair(a.hash, a.piece.bytes.data(), a.piece.bytes.size(), b.hash,
                         b.piece.bytes.data(), b.piece.bytes.size());
      GLYD_RETURN_IF_ERROR(a.Finish());
      GLYD_RETURN_IF_ERROR(b.Finish());
    }
  };
  return ParallelFor(workers, threads, progress, [&](size_t, size_t) {
    absl::Status s = work();
    if (!s.ok()) stop.store(true, std::memory_order_relaxed);
    return s;
  });
}

}  // namespace glyd
