#include "gmock/gmock.h"
#include "tests/fakecuda/process.h"

// CUDA IPC's rules: each is broken, and what the double answers is what is documented.

namespace glyd::fake {
namespace {

using ::testing::HasSubstr;

constexpr char kMiB2[] = "2097152";

TEST_F(FakeCudaTest, AnotherProcessOpensAHandleAndReadsTheSameBytes) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 100"), "0");
  EXPECT_EQ(a.Do("get x"), "0 205");  // not zeroed
  EXPECT_EQ(a.Do("put x 42"), "0");
  EXPECT_EQ(a.Do("wait 0"), "0");
  const std::string handle = a.Get("ipc x");
  ASSERT_EQ(b.Do("open y " + handle), "0");
  EXPECT_EQ(b.Do("get y"), "0 42");
  EXPECT_EQ(b.Do("put y 43"), "0");  // CUDA IPC knows no read-only importer
  EXPECT_EQ(b.Do("wait 0"), "0");
  EXPECT_EQ(a.Do("get x"), "0 43");
  EXPECT_EQ(b.Do("close y"), "0");
  EXPECT_EQ(b.Do("get y"), "1 0");  // use after close
  EXPECT_EQ(a.Do("free x"), "0");
  Stop(a), Stop(b);
  EXPECT_THAT(ReadLog(), Not(HasSubstr("leak")));
}

TEST_F(FakeCudaTest, TheExporterCannotOpenItsOwn) {
  Process a;
  Start(a);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  EXPECT_EQ(a.Do("open y " + a.Get("ipc x")), "201");
  EXPECT_THAT(ReadLog(), HasSubstr("in the exporting process"));
}

TEST_F(FakeCudaTest, OpenedTwiceIsOneAddressCounted) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  const std::string handle = a.Get("ipc x");
  ASSERT_EQ(b.Do("open y " + handle), "0");
  ASSERT_EQ(b.Do("open z " + handle), "0");
  EXPECT_EQ(b.Get("address y"), b.Get("address z"));
  EXPECT_EQ(b.Do("close y"), "0");
  EXPECT_EQ(b.Do("get z"), "0 205");
  EXPECT_EQ(b.Do("close y"), "0");
  EXPECT_EQ(b.Do("get z"), "1 0");
  EXPECT_EQ(b.Do("close y"), "1");
}

TEST_F(FakeCudaTest, OrFailsWith208) {
  Process a, b(Variables{{"FAKECUDA_REOPEN", "208"}});
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  const std::string handle = a.Get("ipc x");
  ASSERT_EQ(b.Do("open y " + handle), "0");
  EXPECT_EQ(b.Do("open z " + handle), "208");
}

TEST_F(FakeCudaTest, AHandleOfFreedMemoryOpensNothing) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  const std::string handle = a.Get("ipc x");
  ASSERT_EQ(a.Do("free x"), "0");
  EXPECT_EQ(b.Do("open y " + handle), "400");
  EXPECT_THAT(ReadLog(), HasSubstr("memory that is gone"));
  EXPECT_EQ(b.Do("open y 00"), "400");
}

TEST_F(FakeCudaTest, FreeingUnderAnImporterPoisons) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  ASSERT_EQ(a.Do("put x 42"), "0");
  ASSERT_EQ(b.Do("open y " + a.Get("ipc x")), "0");
  EXPECT_EQ(a.Do("free x"), "0");
  EXPECT_EQ(b.Do("get y"), "0 165");
  EXPECT_THAT(ReadLog(), HasSubstr("while another process has the memory open"));
}

TEST_F(FakeCudaTest, MemoryOfADeadExporterIsAnIllegalAddress) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 4096"), "0");
  ASSERT_EQ(b.Do("open y " + a.Get("ipc x")), "0");
  ASSERT_EQ(b.Do("alloc sum 8"), "0");
  ASSERT_EQ(b.Do("module m"), "0");
  ASSERT_EQ(b.Do("function f m fake_checksum"), "0");
  EXPECT_EQ(b.Do("launch f 0 1 y 4096 sum"), "0");
  EXPECT_EQ(b.Do("wait 0"), "0");
  a.Kill();
  EXPECT_EQ(b.Do("launch f 0 1 y 4096 sum"), "0");
  EXPECT_EQ(b.Do("wait 0"), "700");
  EXPECT_EQ(b.Do("get sum"), "700 0");  // sticky
}

TEST_F(FakeCudaTest, HandlesAreOfWholeAllocationsOfMemAlloc) {
  Process a, b;
  Start(a), Start(b);
  ASSERT_EQ(a.Do("alloc x 4194304"), "0");
  const uint64_t inside = std::stoull(a.Get("address x")) + 4096;
  ASSERT_EQ(b.Do("open y " + a.Get("ipc " + std::to_string(inside))), "0");
  ASSERT_EQ(a.Do("put x 42"), "0");
  ASSERT_EQ(a.Do("wait 0"), "0");
  EXPECT_EQ(b.Do("get y"), "0 42");  // the base, whatever address was asked of
  ASSERT_EQ(a.Do(std::string("create h ") + kMiB2), "0");
  ASSERT_EQ(a.Do(std::string("reserve v ") + kMiB2), "0");
  ASSERT_EQ(a.Do(std::string("map v h ") + kMiB2), "0");
  EXPECT_EQ(a.Do("ipc v").substr(0, 2), "1 ");
}

TEST_F(FakeCudaTest, AMachineWithoutIpcSaysSoOrLies) {
  Process a, none(Variables{{"FAKECUDA_NO", "ipc"}}), lies(Variables{{"FAKECUDA_NO", "ipc-open"}});
  Start(a), Start(none), Start(lies);
  ASSERT_EQ(a.Do("alloc x 1"), "0");
  const std::string handle = a.Get("ipc x");
  ASSERT_EQ(none.Do("alloc x 1"), "0");
  EXPECT_EQ(none.Do("ipc x").substr(0, 4), "801 ");
  ASSERT_EQ(lies.Do("alloc x 1"), "0");
  EXPECT_EQ(lies.Do("ipc x").substr(0, 2), "0 ");
  EXPECT_EQ(lies.Do("open y " + handle), "205");
}

}  // namespace
}  // namespace glyd::fake
