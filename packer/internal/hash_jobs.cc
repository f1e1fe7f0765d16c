#include "packer/internal/hash_jobs.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/status_macros.h"
#include "packer/internal/job_queue.h"
#include "packer/internal/no_memory.h"

namespace glyd {
namespace {

// One of a thread's two jobs.
struct Lane {
  JobMemory memory;
  Sha256 hash;
  size_t index = 0;
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
    return absl::OkStatus();
  }
};

// A thread's work.
class Worker {
 public:
  Worker(const HashJobs& jobs, JobQueue& queue, const std::function<bool()>& stop)
      : jobs_(jobs), queue_(queue), stop_(stop) {}

  absl::Status Run(const Progress& progress) {
    for (;;) {
      if (progress.cancelled()) return absl::CancelledError("cancelled");
      GLYD_RETURN_IF_ERROR(Refill(a_, b_.job == nullptr));
      if (a_.job == nullptr) std::swap(a_, b_);
      if (a_.job == nullptr) return absl::OkStatus();
      GLYD_RETURN_IF_ERROR(Refill(b_, false));
      if (stop_()) return absl::OkStatus();
      GLYD_RETURN_IF_ERROR(Do(a_, [&] { return a_.Read(); }));
      if (b_.job == nullptr) {
        a_.hash.Update(a_.piece.bytes.data(), a_.piece.bytes.size());
      } else {
        GLYD_RETURN_IF_ERROR(Do(b_, [&] { return b_.Read(); }));
        Sha256::UpdatePair(a_.hash, a_.piece.bytes.data(), a_.piece.bytes.size(), b_.hash,
                           b_.piece.bytes.data(), b_.piece.bytes.size());
        GLYD_RETURN_IF_ERROR(Finish(b_));
      }
      GLYD_RETURN_IF_ERROR(Finish(a_));
    }
  }

 private:
  // What a lane's job does, a failure to allocate told with its name.
  template <typename F>
  absl::Status Do(const Lane& lane, F f) {
    return WithoutBadAlloc([&] { return jobs_.name(lane.index); }, jobs_.need(lane.index), f);
  }

  absl::Status Refill(Lane& lane, bool wait) {
    if (lane.job != nullptr) return absl::OkStatus();
    const std::optional<size_t> i = queue_.Take(wait, stop_);
    if (!i.has_value()) return absl::OkStatus();
    lane.index = *i;
    return Do(lane, [&] {
      lane.job = jobs_.make(*i, lane.memory);
      return absl::OkStatus();
    });
  }

  absl::Status Finish(Lane& lane) {
    GLYD_RETURN_IF_ERROR(Do(lane, [&] { return lane.Finish(); }));
    if (!lane.piece.ends_job) return absl::OkStatus();
    lane.job.reset();
    lane.memory.Trim();
    queue_.Done(lane.index);
    return absl::OkStatus();
  }

  const HashJobs& jobs_;
  JobQueue& queue_;
  const std::function<bool()>& stop_;
  Lane a_, b_;
};

}  // namespace

void JobMemory::Trim(uint64_t most) {
  // Twice a piece is what the largest of them is without a long row block.
  for (Scratch* s : {&bytes, &data, &side, &base, &turned})
    s->Trim(std::max(most, 2 * kPieceBytes));
  if (pack.side.capacity() > 4 * kPieceBytes) pack = {};
}

absl::Status RunHashJobs(const HashJobs& jobs, int threads, Progress& progress) {
  const int workers = WorkerCount(threads, jobs.n);
  JobQueue queue(jobs.n, jobs.need);
  std::atomic<bool> stopped{false};
  const std::function<bool()> stop = [&] {
    return stopped.load(std::memory_order_relaxed) || progress.cancelled();
  };
  return ParallelFor(static_cast<size_t>(workers), workers, progress, [&](size_t, size_t) {
    absl::Status s = Worker(jobs, queue, stop).Run(progress);
    if (!s.ok()) stopped.store(true, std::memory_order_relaxed);
    return s;
  });
}

}  // namespace glyd
