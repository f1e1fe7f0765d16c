#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/testing/fixtures.h"

// What a failing disk, a busy kernel and a kill -9 make of a pack: the driver is run with a library
// that plays them.

namespace glyd {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Bf16;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using testing::ListDir;
using testing::Snapshot;
using testing::TempDir;
using testing::TestTensor;
using testing::WriteModel;

struct Outcome {
  int status = 0;
  std::string text;
  // The shell between tells of a signal by its number, unless it became the program itself.
  bool killed() const {
    return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
  }
  bool ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteModel(dir_ / "model", Tensors(1));
    WriteModel(dir_ / "old", Tensors(2));
    before_ = Snapshot(dir_ / "model");
  }

  static std::vector<TestTensor> Tensors(uint64_t seed) {
    return {{"a.weight", "BF16", {64, 64}, Bf16(64 * 64, seed, 0.1)},
            {"b.weight", "BF16", {64, 32}, Bf16(64 * 32, seed + 10)},
            {"c", "F32", {1000}, std::string(4000, static_cast<char>(seed))}};
  }

  // Runs the driver under a fault.
  Outcome Run(const std::string& fault, const std::string& arguments) {
    const char* bin = ::getenv("GLYD_BIN_DIR");
    const std::string command =
        absl::StrCat("ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=", bin,
                     "/../lib/libpacker_fault_shim.so GLYD_FAULT=", fault, " ", bin,
                     "/pack_driver ", arguments, " 2>&1");
    Outcome o;
    FILE* f = ::popen(command.c_str(), "r");
    char buffer[4096];
    while (const size_t n = ::fread(buffer, 1, sizeof buffer, f)) o.text.append(buffer, n);
    o.status = ::pclose(f);
    return o;
  }
  Outcome Pack(const std::string& fault, const std::string& model = "model") {
    return Run(fault, absl::StrCat("pack ", dir_ / model, " ", dir_ / "out"));
  }

  void ExpectWhole() {
    EXPECT_TRUE(testing::Verify(dir_ / "out").ok()) << testing::Verify(dir_ / "out");
    EXPECT_THAT(ListDir(dir_.path()), ElementsAre("model", "old", "out"));
    EXPECT_EQ(Snapshot(dir_ / "model"), before_);
  }
  void ExpectNothing() {
    EXPECT_THAT(ListDir(dir_.path()), ElementsAre("model", "old"));
    EXPECT_EQ(Snapshot(dir_ / "model"), before_);
  }

  // Kills a pack at each change that it makes to the disk, until it comes through. `more`: what the
  // file system lacks besides.
  void Sweep(bool over_old, const std::string& more = "") {
    ASSERT_TRUE(Pack("none", "old").ok());
    const std::vector<std::string> old_save = Snapshot(dir_ / "out");
    fs::remove_all(dir_ / "out");
    ASSERT_TRUE(Pack("none").ok());
    const std::vector<std::string> new_save = Snapshot(dir_ / "out");
    ASSERT_NE(old_save, new_save);
    int deaths = 0;
    for (int n = 1; n < 1000; ++n) {
      SCOPED_TRACE(absl::StrCat("killed at change ", n));
      fs::remove_all(dir_ / "out");
      if (over_old) {
        ASSERT_TRUE(Pack("none", "old").ok());
      }
      const Outcome o = Pack(absl::StrCat("kill=", n, more));
      if (!o.killed()) {
        ASSERT_TRUE(o.ok()) << o.text;
        break;
      }
      ++deaths;
      if (!more.empty()) {
        // The next run fails, and must not take with it what the killed one left.
        EXPECT_THAT(Pack(absl::StrCat("fsync=", EIO, ":1", more)).text, HasSubstr("fsync"));
      }
      const bool there = fs::exists(dir_ / "out");
      EXPECT_TRUE(there || !over_old);
      if (there) {
        EXPECT_THAT(Snapshot(dir_ / "out"),
                    AnyOf(Eq(new_save), Eq(over_old ? old_save : new_save)));
      }
      ASSERT_TRUE(Pack("none").ok());
      ExpectWhole();
      EXPECT_EQ(Snapshot(dir_ / "out"), new_save);
    }
    EXPECT_GT(deaths, 20);
  }

  const TempDir dir_;
  std::vector<std::string> before_;
};

TEST_F(FaultTest, ReadsOfOneByte) {
  ASSERT_TRUE(Pack("onebyte").ok());
  ExpectWhole();
  EXPECT_TRUE(Run("onebyte", "verify " + dir_ / "out").ok());
}

TEST_F(FaultTest, ShortWrites) {
  ASSERT_TRUE(Pack("short").ok());
  ExpectWhole();
}

TEST_F(FaultTest, Interruptions) {
  const Outcome o = Pack("eintr");
  ASSERT_TRUE(o.ok()) << o.text;
  ExpectWhole();
  EXPECT_TRUE(Run("eintr", "verify " + dir_ / "out").ok());
  fs::remove_all(dir_ / "old");
  EXPECT_TRUE(Run("eintr", absl::StrCat("unpack ", dir_ / "out", " ", dir_ / "old")).ok());
  EXPECT_EQ(testing::TensorsOf(dir_ / "old"), testing::TensorsOf(dir_ / "model"));
}

// The n-th call fails, for each n until there is none.
TEST_F(FaultTest, FailingReads) {
  int n = 1;
  for (; n < 1000; ++n) {
    SCOPED_TRACE(absl::StrCat("read ", n));
    const Outcome o = Pack(absl::StrCat("pread=", EIO, ":", n));
    if (o.ok()) break;
    EXPECT_THAT(o.text, AllOf(HasSubstr("Input/output error"), HasSubstr(dir_ / "model")));
    ExpectNothing();
  }
  EXPECT_GT(n, 5);
  ExpectWhole();
}

TEST_F(FaultTest, FailingWrites) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG}) {
    int n = 2;  // the first is of the lock
    for (; n < 1000; ++n) {
      SCOPED_TRACE(absl::StrCat(::strerror(error), " at write ", n));
      const Outcome o = Pack(absl::StrCat("pwrite=", error, ":", n));
      if (o.ok()) break;
      EXPECT_THAT(o.text, HasSubstr(::strerror(error)));
      if (error != EIO) {
        EXPECT_THAT(o.text, HasSubstr("the whole output needs"));
      }
      ExpectNothing();
    }
    EXPECT_GT(n, 8);
    ExpectWhole();
    fs::remove_all(dir_ / "out");
  }
}

TEST_F(FaultTest, NoRoomAtAll) {
  const Outcome o = Pack(absl::StrCat("fallocate=", ENOSPC, ":0"));
  EXPECT_THAT(o.text, HasSubstr("the whole output needs"));
  ExpectNothing();
  // A file system that cannot reserve is written all the same.
  EXPECT_TRUE(Pack(absl::StrCat("fallocate=", EOPNOTSUPP, ":0")).ok());
  ExpectWhole();
}

TEST_F(FaultTest, FailingSync) {
  // The data, config.json, glyd.json, their directory; then the parent, when the save is there
  // already.
  for (int n = 1; n <= 4; ++n) {
    const Outcome o = Pack(absl::StrCat("fsync=", EIO, ":", n));
    EXPECT_FALSE(o.ok()) << n;
    EXPECT_THAT(o.text, HasSubstr("fsync"));
    ExpectNothing();
  }
  EXPECT_THAT(Pack(absl::StrCat("fsync=", EIO, ":5")).text, HasSubstr("is in its place, but"));
  ExpectWhole();
}

TEST_F(FaultTest, FailingRename) {
  for (const int error : {EIO, EROFS, ENOSPC}) {
    const Outcome o = Pack(absl::StrCat("renameat2=", error, ":0"));
    EXPECT_FALSE(o.ok());
    EXPECT_THAT(o.text, HasSubstr("rename"));
    ExpectNothing();
  }
}

TEST_F(FaultTest, AFileSystemWithoutRenameat2) {
  ASSERT_TRUE(Pack(absl::StrCat("renameat2=", EINVAL, ":0"), "old").ok());
  ExpectWhole();
  // Over the old save, and with the second of the two renames failing.
  const std::vector<std::string> old_save = Snapshot(dir_ / "out");
  ASSERT_TRUE(Pack(absl::StrCat("renameat2=", EINVAL, ":0")).ok());
  ExpectWhole();
  EXPECT_NE(Snapshot(dir_ / "out"), old_save);
}

TEST_F(FaultTest, KillSweep) { Sweep(false); }
TEST_F(FaultTest, KillSweepOverAnOldSave) { Sweep(true); }
TEST_F(FaultTest, KillSweepOverAnOldSaveWithoutAnExchange) { Sweep(true, ",no-exchange"); }

// A late one: the weights are written, what is small beside them is not.
TEST_F(FaultTest, FailingSmallWritesTellOfTheSave) {
  int n = 1;
  for (; n < 1000; ++n) {
    SCOPED_TRACE(absl::StrCat("write ", n));
    const Outcome o = Pack(absl::StrCat("write=", ENOSPC, ":", n));
    if (o.ok()) break;
    EXPECT_THAT(o.text, AllOf(HasSubstr("No space left"), HasSubstr("the whole output needs")));
    ExpectNothing();
  }
  EXPECT_GT(n, 2);
  EXPECT_THAT(Pack(absl::StrCat("fsync=", ENOSPC, ":2")).text, HasSubstr("the whole output needs"));
}

}  // namespace
}  // namespace glyd
