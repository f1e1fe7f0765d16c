#include <chrono>

#include "gmock/gmock.h"
#include "tests/fakecuda/process.h"

// Devices, streams and kernels.

namespace glyd::fake {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class FakeCudaLaunch : public FakeCudaTest {
 protected:
  static void Ready(Process& p) {
    Start(p);
    ASSERT_EQ(p.Do("module m"), "0");
    ASSERT_EQ(p.Do("function fill m fake_fill"), "0");
    ASSERT_EQ(p.Do("stream s"), "0");
    ASSERT_EQ(p.Do("alloc x 4096"), "0");
  }
};

TEST_F(FakeCudaTest, VisibleDevicesByNumberAndUuid) {
  const Variables three = {{"FAKECUDA_DEVICES", "3"}};
  Process all(three);
  EXPECT_EQ(all.Do("count"), "0 3");
  const std::string last = all.Get("uuid 2");
  EXPECT_THAT(last, StartsWith("GPU-"));
  auto chosen = three;
  chosen["CUDA_VISIBLE_DEVICES"] = last + ",0";
  Process two(chosen);
  EXPECT_EQ(two.Do("count"), "0 2");
  EXPECT_EQ(two.Get("uuid 0"), last);
  EXPECT_EQ(two.Get("uuid 1"), all.Get("uuid 0"));
  EXPECT_EQ(two.Do("uuid 2").substr(0, 4), "101 ");
  chosen["CUDA_VISIBLE_DEVICES"] = "1,7,0";  // what follows a GPU that is not there does not count
  EXPECT_EQ(Process(chosen).Do("count"), "0 1");
  for (const char* none : {"", "-1", "0,0"}) {
    chosen["CUDA_VISIBLE_DEVICES"] = none;
    EXPECT_THAT(Process(chosen).start(), StartsWith("100 ")) << none;
  }
  EXPECT_THAT(Process(Variables{{"FAKECUDA_DEVICES", "0"}}).start(), StartsWith("100 "));
}

TEST_F(FakeCudaLaunch, AKernelRunsWhenItIsWaitedFor) {
  Process a;
  Ready(a);
  ASSERT_EQ(a.Do("launch fill s 32 x 4096 7"), "0");
  EXPECT_EQ(a.Do("get x 4095"), "0 205");  // of the null stream, which this one does not wait for
  EXPECT_EQ(a.Do("wait s"), "0");
  EXPECT_EQ(a.Do("get x 4095"), "0 7");
}

TEST_F(FakeCudaLaunch, EventsOrderStreams) {
  Process a;
  Ready(a);
  ASSERT_EQ(a.Do("stream t"), "0");
  ASSERT_EQ(a.Do("event e"), "0");
  ASSERT_EQ(a.Do("launch fill s 32 x 4096 7"), "0");
  ASSERT_EQ(a.Do("record e s"), "0");
  EXPECT_EQ(a.Do("query e"), "600");
  ASSERT_EQ(a.Do("after t e"), "0");
  ASSERT_EQ(a.Do("launch fill t 32 x 100 8"), "0");
  EXPECT_EQ(a.Do("wait t"), "0");
  EXPECT_EQ(a.Do("get x 0"), "0 8");
  EXPECT_EQ(a.Do("get x 100"), "0 7");
  EXPECT_EQ(a.Do("query e"), "0");
  EXPECT_EQ(a.Do("reach e"), "0");
  for (const char* c : {"unevent e", "destroy s", "destroy t", "unload m", "free x"})
    EXPECT_EQ(a.Do(c), "0") << c;
  Stop(a);
  EXPECT_EQ(ReadLog(), "");
}

TEST_F(FakeCudaLaunch, LaunchesThatAGpuDoesNotTake) {
  Process a;
  Ready(a);
  EXPECT_EQ(a.Do("launch fill s 0 x 4096 7"), "1");
  EXPECT_EQ(a.Do("launch fill s 1025 x 4096 7"), "1");
  EXPECT_EQ(a.Do("launch fill x 32 x 4096 7"), "400");
  EXPECT_EQ(a.Do("function g m no_such_kernel"), "500");
  EXPECT_EQ(a.Do("module n not an image"), "200");
}

TEST_F(FakeCudaLaunch, UnmappedMemoryIsError700AndSticky) {
  Process a;
  Ready(a);
  EXPECT_EQ(a.Do("launch fill s 32 x 9000000 7"), "0");
  EXPECT_EQ(a.Do("wait s"), "700");
  EXPECT_EQ(a.Do("wait 0"), "700");
  EXPECT_EQ(a.Do("alloc y 1"), "700");
  EXPECT_THAT(ReadLog(), HasSubstr("fake_fill touched memory that it may not"));
  Process b;  // another process is well
  Ready(b);
}

TEST_F(FakeCudaLaunch, MemoryMappedToReadIsNotWritten) {
  Process a, b;
  Ready(a), Ready(b);
  ASSERT_EQ(a.Do("create h 2097152"), "0");
  ASSERT_EQ(b.Do("import h " + a.Get("export h")), "0");
  ASSERT_EQ(b.Do("reserve v 2097152"), "0");
  ASSERT_EQ(b.Do("map v h 2097152"), "0");
  ASSERT_EQ(b.Do("access v 2097152 1"), "0");
  ASSERT_EQ(b.Do("function sum m fake_checksum"), "0");
  EXPECT_EQ(b.Do("launch sum s 32 v 4096 x"), "0");
  EXPECT_EQ(b.Do("wait s"), "0");
  EXPECT_EQ(b.Do("launch fill s 32 v 1 7"), "0");
  EXPECT_EQ(b.Do("wait s"), "700");
}

TEST_F(FakeCudaLaunch, AStickyErrorAtTheNthKernel) {
  Process a(Variables{{"FAKECUDA_FAIL", "kernel:2=719"}});
  Ready(a);
  EXPECT_EQ(a.Do("launch fill s 32 x 1 7"), "0");
  EXPECT_EQ(a.Do("wait s"), "0");
  EXPECT_EQ(a.Do("launch fill s 32 x 1 8"), "0");  // told where it is waited for
  EXPECT_EQ(a.Do("wait s"), "719");
  EXPECT_EQ(a.Do("launch fill s 32 x 1 9"), "719");
  Process b(Variables{{"FAKECUDA_FAIL", "cuLaunchKernel:1=701"}});  // not every error is
  Ready(b);
  EXPECT_EQ(b.Do("launch fill s 32 x 1 7"), "701");
  EXPECT_EQ(b.Do("launch fill s 32 x 1 7"), "0");
}

TEST_F(FakeCudaLaunch, SlowCallsAndSlowKernels) {
  Process a(Variables{{"FAKECUDA_FAIL", "cuMemAlloc~50"}});
  const auto start = std::chrono::steady_clock::now();
  Ready(a);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  ASSERT_EQ(a.Do("function nap m fake_sleep"), "0");
  const auto launched = std::chrono::steady_clock::now();
  ASSERT_EQ(a.Do("launch nap s 1 50"), "0");
  EXPECT_EQ(a.Do("wait s"), "0");
  EXPECT_GE(std::chrono::steady_clock::now() - launched, std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace glyd::fake
