#include "packer/internal/job_queue.h"

#include <optional>
#include <thread>
#include <vector>

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/internal/hash_jobs.h"
#include "packer/internal/no_memory.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMb = 1 << 20;
const std::function<bool()> kNever = [] { return false; };

TEST(JobQueueTest, GivesOutWhatFits) {
  const std::vector<uint64_t> needs = {200 * kMb, 200 * kMb, 1024 * kMb, 8 * kMb, 8 * kMb};
  JobQueue q(needs.size(), [&](size_t i) { return needs[i]; });
  EXPECT_EQ(q.Take(true, kNever), 0u);
  EXPECT_EQ(q.Take(false, kNever), std::nullopt);
  q.Done(0);
  EXPECT_EQ(q.Take(false, kNever), 1u);
  EXPECT_EQ(q.Take(false, kNever), std::nullopt);
  q.Done(1);
  // More than all there is: alone.
  EXPECT_EQ(q.Take(false, kNever), 2u);
  EXPECT_EQ(q.Take(false, kNever), std::nullopt);
  q.Done(2);
  EXPECT_EQ(q.Take(true, kNever), 3u);
  EXPECT_EQ(q.Take(false, kNever), 4u);
  EXPECT_EQ(q.Take(true, kNever), std::nullopt);
}

TEST(JobQueueTest, WaitsForRoomOrAStop) {
  JobQueue q(2, [](size_t) { return 200 * kMb; });
  ASSERT_EQ(q.Take(true, kNever), 0u);
  EXPECT_EQ(q.Take(true, [] { return true; }), std::nullopt);
  std::optional<size_t> next;
  std::thread waits([&] { next = q.Take(true, kNever); });
  q.Done(0);
  waits.join();
  EXPECT_EQ(next, 1u);
}

TEST(JobQueueTest, ThreadsAreNoMoreThanTheBudgetHolds) {
  EXPECT_EQ(WorkerCount(1, 100), 1);
  EXPECT_EQ(WorkerCount(8, 3), 3);
  EXPECT_EQ(WorkerCount(8, 0), 1);
  EXPECT_LE(static_cast<uint64_t>(WorkerCount(1024, 100000)) * 2 * kLaneBytes, kSharedBytes);
}

// A job whose memory is not to be had, in any of its steps.
class Greedy : public HashJob {
 public:
  explicit Greedy(int step) : step_(step) {}
  absl::StatusOr<Piece> Next() override {
    if (step_ == 0) throw NoMemory(12345);
    return Piece{{bytes_, sizeof bytes_}, true, true};
  }
  absl::Status Use(const Piece&) override {
    if (step_ == 1) throw std::bad_alloc();
    return absl::OkStatus();
  }
  absl::Status EndTensor(const Digest&) override {
    if (step_ == 2) throw std::bad_alloc();
    return absl::OkStatus();
  }

 private:
  const int step_;
  const uint8_t bytes_[4] = {};
};

TEST(HashJobsTest, WantOfMemoryNamesTheTensorAndTheBytes) {
  for (const int step : {0, 1, 2, 3, 4}) {
    for (const int threads : {1, 3}) {
      HashJobs jobs;
      jobs.n = 7;
      jobs.need = [](size_t) { return 54321; };
      jobs.name = [](size_t i) { return absl::StrCat("tensor ", i); };
      jobs.make = [&](size_t i, JobMemory&) -> std::unique_ptr<HashJob> {
        if (i == 4 && step == 3) throw std::bad_alloc();
        return std::make_unique<Greedy>(i == 4 ? step : 4);
      };
      Progress silent;
      const absl::Status s = RunHashJobs(jobs, threads, silent);
      if (step == 4) {
        EXPECT_TRUE(s.ok()) << s;
        continue;
      }
      EXPECT_TRUE(absl::IsResourceExhausted(s)) << s;
      EXPECT_EQ(ReasonOf(s), kReasonNoMemory);
      EXPECT_THAT(
          std::string(s.message()),
          AllOf(HasSubstr("tensor 4"), HasSubstr(step == 0 ? "12345 bytes" : "54321 bytes")));
    }
  }
}

}  // namespace
}  // namespace glyd
