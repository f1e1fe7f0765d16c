#include <algorithm>

#include "gmock/gmock.h"
#include "tests/fakecuda/process.h"

// Memory by descriptor, ordinary memory, what is left over, and faults asked for.

namespace glyd::fake {
namespace {

using ::testing::HasSubstr;

TEST_F(FakeCudaTest, MemoryByDescriptorIsSharedAndOutlivesItsMaker) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("create h 2097152"), "0");
  ASSERT_EQ(a.Do("reserve v 2097152"), "0");
  ASSERT_EQ(a.Do("map v h 2097152"), "0");
  ASSERT_EQ(a.Do("access v 2097152 3"), "0");
  ASSERT_EQ(a.Do("put v 42"), "0");
  ASSERT_EQ(a.Do("wait 0"), "0");
  ASSERT_EQ(b.Do("import h " + a.Get("export h")), "0");
  a.Kill();
  ASSERT_EQ(b.Do("reserve v 2097152"), "0");
  ASSERT_EQ(b.Do("map v h 2097152"), "0");
  EXPECT_EQ(b.Do("get v"), "1 0");  // mapped without access
  EXPECT_THAT(ReadLog(), HasSubstr("mapped without access"));
  ASSERT_EQ(b.Do("access v 2097152 1"), "0");
  EXPECT_EQ(b.Do("get v"), "0 42");
  EXPECT_EQ(b.Do("put v 1"), "1");
  EXPECT_THAT(ReadLog(), HasSubstr("memory mapped to read"));
  EXPECT_EQ(b.Do("drop h"), "0");
  EXPECT_EQ(b.Do("drop h"), "1");
  EXPECT_EQ(b.Do("get v"), "0 42");  // its mapping holds it
  EXPECT_EQ(b.Do("unreserve v 2097152"), "1");
  EXPECT_EQ(b.Do("unmap v 2097152"), "0");
  EXPECT_EQ(b.Do("get v"), "1 0");  // use after unmap
  EXPECT_EQ(b.Do("unreserve v 2097152"), "0");
  Stop(b);
  EXPECT_THAT(ReadLog(), Not(HasSubstr("leak")));
}

TEST_F(FakeCudaTest, UnalignedSizesAreRefused) {
  Process a;
  Start(a);
  EXPECT_EQ(a.Do("create h 4096"), "1");
  EXPECT_EQ(a.Do("reserve v 4096"), "1");
  ASSERT_EQ(a.Do("create h 2097152"), "0");
  ASSERT_EQ(a.Do("reserve v 4194304"), "0");
  EXPECT_EQ(a.Do("map v h 4096"), "1");
  const uint64_t at = std::stoull(a.Get("address v")) + 4096;
  EXPECT_EQ(a.Do("map " + std::to_string(at) + " h 2097152"), "1");
  EXPECT_EQ(a.Do("map v h 4194304"), "1");  // more than there is
  EXPECT_THAT(ReadLog(), HasSubstr("no multiple of the granularity"));
}

TEST_F(FakeCudaTest, ADescriptorOfSomethingElseIsNotImported) {
  Process a;
  Start(a);
  EXPECT_EQ(a.Do("import h /dev/null"), "1");
  Process other(Variables{{"FAKECUDA_TAG", "another-machine"}});
  Start(other);
  ASSERT_EQ(other.Do("create h 2097152"), "0");
  EXPECT_EQ(a.Do("import h " + other.Get("export h")), "1");
}

TEST_F(FakeCudaTest, AMachineWithoutMemoryByDescriptorSaysSoOrLies) {
  Process none(Variables{{"FAKECUDA_NO", "vmm"}}),
      lies(Variables{{"FAKECUDA_NO", "ipc,vmm-import"}});
  Start(none), Start(lies);
  EXPECT_EQ(none.Do("create h 2097152"), "801");
  ASSERT_EQ(lies.Do("create h 2097152"), "0");
  EXPECT_EQ(lies.Do("import i " + lies.Get("export h")), "304");
}

TEST_F(FakeCudaTest, NothingWithoutAContext) {
  Process a;
  ASSERT_EQ(a.Do("alloc x 1"), "201");
  EXPECT_THAT(ReadLog(), HasSubstr("cuMemAlloc with no context current"));
  EXPECT_EQ(a.Do("push 4096"), "201");
  EXPECT_EQ(a.Do("pop"), "201");
  ASSERT_EQ(a.Do("retain c 0"), "0");
  ASSERT_EQ(a.Do("push c"), "0");
  EXPECT_EQ(a.Do("alloc x 1"), "0");
  EXPECT_EQ(a.Do("elsewhere alloc y 1"), "201");  // current in one thread, not in another
}

TEST_F(FakeCudaTest, AReleasedContextIsGone) {
  Process a;
  Start(a);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  ASSERT_EQ(a.Do("pop"), "0");
  EXPECT_EQ(a.Do("release 0"), "0");
  EXPECT_THAT(ReadLog(), HasSubstr("last release of a context with 1 allocations"));
  EXPECT_EQ(a.Do("release 0"), "201");
  EXPECT_EQ(a.Do("push c"), "201");
}

TEST_F(FakeCudaTest, WhatBelongsToAnotherContextIsRefused) {
  Process a(Variables{{"FAKECUDA_DEVICES", "2"}});
  Start(a);
  ASSERT_EQ(a.Do("stream s"), "0");
  ASSERT_EQ(a.Do("event e"), "0");
  ASSERT_EQ(a.Do("module m"), "0");
  ASSERT_EQ(a.Do("function f m fake_sleep"), "0");
  ASSERT_EQ(a.Do("retain d 1"), "0");
  ASSERT_EQ(a.Do("push d"), "0");
  EXPECT_EQ(a.Do("record e s"), "400");
  ASSERT_EQ(a.Do("event g"), "0");
  EXPECT_EQ(a.Do("record g s"), "400");
  EXPECT_EQ(a.Do("launch f 0 1 0"), "400");
  ASSERT_EQ(a.Do("pop"), "0");
  EXPECT_EQ(a.Do("record e s"), "0");
  EXPECT_EQ(a.Do("launch f s 1 0"), "0");
  Process b(Variables{{"FAKECUDA_DEVICES", "2"}});
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  ASSERT_EQ(b.Do("retain c 1"), "0");
  ASSERT_EQ(b.Do("push c"), "0");
  EXPECT_EQ(b.Do("open y " + a.Get("ipc x")), "101");
  EXPECT_THAT(ReadLog(), HasSubstr("handle of another GPU"));
}

TEST_F(FakeCudaTest, AnotherProcessesPointerIsNone) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  EXPECT_EQ(b.Do("get " + a.Get("address x")), "1 0");
  EXPECT_EQ(b.Do("free " + a.Get("address x")), "1");
}

TEST_F(FakeCudaTest, TheCpuCannotTouchDeviceMemory) {
  Process a;
  Start(a);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  EXPECT_EQ(a.Do("touch x"), "gone");
  EXPECT_EQ(WTERMSIG(a.End()), SIGSEGV);
}

TEST_F(FakeCudaTest, LeaksAreToldAtExit) {
  Process a;
  Start(a);
  for (const char* c : {"alloc x 1", "create h 2097152", "reserve v 2097152", "stream s", "event e",
                        "module m", "map v h 2097152"})
    ASSERT_EQ(a.Do(c), "0") << c;
  EXPECT_EQ(a.End(), 0);
  for (const char* what :
       {"cuMemAlloc", "cuMemCreate", "cuMemAddressReserve", "cuStreamCreate", "cuEventCreate",
        "cuModuleLoadData", "cuMemMap", "cuDevicePrimaryCtxRetain"})
    EXPECT_THAT(ReadLog(), HasSubstr(std::string("leak at exit: 1 of ") + what + "\n"));
}

TEST_F(FakeCudaTest, CountersAreReadByAnotherProcess) {
  Process a(Variables{{"FAKECUDA_COUNTERS", dir_}});
  Start(a);
  const std::string path = dir_ + "/" + std::to_string(a.pid());
  const auto count = [&](const std::string& name) {
    std::ifstream in(path);
    std::string word;
    long n;
    while (in >> word >> n)
      if (word == name) return n;
    return -1L;
  };
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  ASSERT_EQ(a.Do("alloc y 4194304"), "0");
  EXPECT_EQ(count("cuMemAlloc"), 2);
  EXPECT_EQ(count("bytes"), 6291456);
  ASSERT_EQ(a.Do("free y"), "0");
  EXPECT_EQ(count("cuMemAlloc"), 1);
  ASSERT_EQ(a.Do("free x"), "0");
  EXPECT_EQ(count("bytes"), 0);
  Stop(a);
  EXPECT_FALSE(std::ifstream(path).is_open());
}

TEST_F(FakeCudaTest, MemoryIsOfTheGpuNotOfTheProcess) {
  const Variables small = {{"FAKECUDA_MEMORY", "8388608"}};
  Process a(small), b(small);
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 4194304"), "0");
  EXPECT_EQ(b.Do("info"), "0 4194304 8388608");
  EXPECT_EQ(b.Do("alloc y 6291456"), "2");
  ASSERT_EQ(b.Do("open y " + a.Get("ipc x")), "0");  // the same bytes, not more
  EXPECT_EQ(b.Do("info"), "0 4194304 8388608");
  b.Kill();
  EXPECT_EQ(a.Do("free x"), "0");
  EXPECT_EQ(a.Do("info"), "0 8388608 8388608");
}

TEST_F(FakeCudaTest, MemoryOfGpuTenIsNotGpuOnes) {
  Process a({{"FAKECUDA_DEVICES", "11"}, {"FAKECUDA_MEMORY", "8388608"}});
  ASSERT_EQ(a.Do("retain c 10"), "0");
  ASSERT_EQ(a.Do("push c"), "0");
  ASSERT_EQ(a.Do("alloc x 100"), "0");
  EXPECT_EQ(a.Do("info"), "0 6291456 8388608");
  ASSERT_EQ(a.Do("retain d 1"), "0");
  ASSERT_EQ(a.Do("push d"), "0");
  EXPECT_EQ(a.Do("info"), "0 8388608 8388608");
}

TEST_F(FakeCudaTest, FaultsStrikeAtTheNthCall) {
  Process a(Variables{{"FAKECUDA_FAIL", "cuMemAlloc:2,cuMemFree:1=1"}});
  Start(a);
  EXPECT_EQ(a.Do("alloc x 1"), "0");
  EXPECT_EQ(a.Do("alloc y 1"), "2");
  EXPECT_EQ(a.Do("alloc y 1"), "0");
  EXPECT_EQ(a.Do("free x"), "1");
  EXPECT_EQ(a.Do("free x"), "0");
}

TEST_F(FakeCudaTest, AFaultOfAFileStrikesOneProcess) {
  const std::string plan = dir_ + "/plan";
  std::ofstream(plan) << "cuMemAlloc:1\n";
  Process a(Variables{{"FAKECUDA_FAIL", "@" + plan}}), b(Variables{{"FAKECUDA_FAIL", "@" + plan}});
  Start(a), Start(b);
  EXPECT_EQ(a.Do("alloc x 1"), "2");
  EXPECT_EQ(b.Do("alloc x 1"), "0");
}

TEST_F(FakeCudaTest, AChildForkedAfterInitHasNoDriver) {
  Process a;
  Start(a);
  EXPECT_EQ(a.Do("fork"), "3");
  EXPECT_THAT(ReadLog(), HasSubstr("in a child forked after cuInit"));
  EXPECT_EQ(a.Do("alloc x 1"), "0");
}

}  // namespace
}  // namespace glyd::fake
