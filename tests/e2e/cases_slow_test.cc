// Cases from the field that take many rounds (cases_test.cc has the others).

#include <gmock/gmock.h>
#include <signal.h>

#include <deque>
#include <fstream>

#include "tests/e2e/cases.h"

namespace glyd {
namespace {

class DaemonCases : public CasesTest {};

TEST_F(DaemonCases, DeadClient) {
  Start();
  RawClient watch(dir());
  ASSERT_EQ(watch.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  constexpr int kSteps = 7, kRounds = 200;
  const pid_t pid = daemon().process().pid();
  int fds = 0;
  uint64_t memory = 0;
  std::deque<std::unique_ptr<Process>> stopped;
  for (int round = 0; round < kRounds; ++round) {
    const int step = round % kSteps;
    auto p = std::make_unique<Process>("client-steps",
                                       std::vector<std::string>{dir(), "a", absl::StrCat(step)});
    ASSERT_TRUE(p->WaitForOut("there\n")) << "round " << round << ", step " << step << p->out();
    // The daemon answers whatever its clients do: a second is no measurement.
    ASSERT_GT(watch.Info(1).pid(), 0) << round;
    if (round / kSteps % 2 == 0) {
      p->Signal(SIGKILL);
    } else {
      p->Signal(SIGSTOP);
      stopped.push_back(std::move(p));
      if (stopped.size() > 10) stopped.pop_front();  // killed
    }
    if (round == 2 * kSteps - 1 || round == kRounds - 1) {
      stopped.clear();
      // What is left after fourteen rounds is what is left after all.
      EXPECT_TRUE(Eventually([&] { return watch.Info().leases() == 0; }, absl::Seconds(1)));
      EXPECT_TRUE(Eventually([&] { return watch.Info().sessions() == 1; }, absl::Seconds(1)));
      const auto worker = static_cast<pid_t>(watch.Info().devices(0).worker_pid());
      if (round == kRounds - 1) {
        EXPECT_TRUE(Eventually([&] { return OpenFds(pid) <= fds; }))
            << OpenFds(pid) << " descriptors, " << fds << " at first";
        EXPECT_EQ(MemoryFileBytes({pid, worker}), memory);
      } else {
        absl::SleepFor(absl::Seconds(1));  // gRPC closes connections in its own time
        fds = OpenFds(pid);
        memory = MemoryFileBytes({pid, worker});
      }
    }
  }
  EXPECT_TRUE(watch.Unload("a").ok());
  EXPECT_EQ(watch.Info().devices(0).used_bytes(), 0u);
}

// A thousand loads and unloads, and at each turn the bytes that the daemon tells of are those that
// the kernel counts.
TEST_F(DaemonCases, LyingUnload) {
  Start();
  RawClient c(dir());
  const pid_t pid = daemon().process().pid();
  const auto worker = static_cast<pid_t>(c.Info().devices(0).worker_pid());
  ASSERT_EQ(c.LoadAndWait("kept", "m/other").state(), v1::MODEL_STATE_READY);
  const auto held = [&] { return MemoryFileBytes({pid, worker}); };
  const uint64_t kept = held();
  EXPECT_EQ(c.Info().devices(0).used_bytes(), kept);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY) << i;
    ASSERT_EQ(c.Info().devices(0).used_bytes(), held()) << i;
    ASSERT_EQ(held(), kept + c.Get("a").allocation_bytes()) << i;
    ASSERT_TRUE(c.Unload("a").ok());
    ASSERT_TRUE(Eventually([&] { return held() == kept; })) << i;
    ASSERT_EQ(c.Info().devices(0).used_bytes(), kept) << i;
  }
  EXPECT_EQ(c.Info().devices(0).worker_restarts(), 0u);
}

}  // namespace
}  // namespace glyd
