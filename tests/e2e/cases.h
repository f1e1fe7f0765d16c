#ifndef GLYD_TESTS_E2E_CASES_H_
#define GLYD_TESTS_E2E_CASES_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "packer/testing/fixtures.h"
#include "tests/e2e/calls.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/worker_faults.h"

namespace glyd {

inline std::string BinPath(const std::string& program) {
  const char* bin = std::getenv("GLYD_BIN_DIR");
  return absl::StrCat(bin == nullptr ? "." : bin, "/", program);
}

// The children of a process, of all its threads.
inline std::set<pid_t> ChildrenOf(pid_t pid) {
  std::set<pid_t> out;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    std::istringstream children(testing::ReadFile(task.path() / "children"));
    for (pid_t child; children >> child;) out.insert(child);
  }
  return out;
}

// The memory of models and arenas that these processes hold by a descriptor, each block once: what
// the kernel counts, not what the daemon says.
inline uint64_t MemoryFileBytes(const std::vector<pid_t>& pids) {
  std::map<uint64_t, uint64_t> blocks;
  for (const pid_t pid : pids) {
    std::error_code error;
    for (const auto& e :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
      const std::string to = std::filesystem::read_symlink(e.path(), error);
      struct stat st;
      if (to.rfind("/memfd:glyd-", 0) == 0 && to.find("glyd-table") == std::string::npos &&
          ::stat(e.path().c_str(), &st) == 0)
        blocks[st.st_ino] = static_cast<uint64_t>(st.st_blocks) * 512;
    }
  }
  uint64_t sum = 0;
  for (const auto& [inode, bytes] : blocks) sum += bytes;
  return sum;
}

// A daemon with two small saves (m/save, m/other) and a checkpoint (m/checkpoint) in its root m.
class CasesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Made once a process: nothing here changes them.
    static const TempDir made;
    static const bool good = [] {
      for (const auto& [name, checkpoint] :
           {std::pair("save", "llama-biases"), std::pair("other", "llama-ragged")})
        if (RunProgram("glyd",
                       {"-q", "pack", testing::CheckpointCases() + "/" + checkpoint, made / name})
                .code != 0)
          return false;
      return true;
    }();
    ASSERT_TRUE(good);
    std::filesystem::copy(made.path(), dir_.path(), std::filesystem::copy_options::recursive);
    std::filesystem::copy(testing::CheckpointCases() + "/llama-biases", dir_ / "checkpoint");
  }

  const std::string& dir() const { return dir_.path(); }
  DaemonProcess& daemon() { return *daemon_; }
  bool HasDaemon() const { return daemon_ != nullptr; }
  WorkerFaults& faults() { return *faults_; }

  void Start(const std::vector<std::string>& more = {}, const std::vector<std::string>& wrap = {}) {
    std::vector<std::string> arguments = {"--root", "m=" + dir() + ":rw"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    daemon_ = nullptr;
    daemon_ = std::make_unique<DaemonProcess>(dir(), arguments, wrap);
    ASSERT_TRUE(daemon_->ready()) << daemon_->process().err();
  }

  // With a worker whose memory fails and goes as faults() says.
  void StartWithFaults() {
    const std::string path = dir() + "/faults";
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(fd.get(), sizeof(WorkerFaults)), 0);
    void* p =
        ::mmap(nullptr, sizeof(WorkerFaults), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(p, MAP_FAILED);
    faults_ = static_cast<WorkerFaults*>(p);
    Start({}, {"/usr/bin/env", "LD_PRELOAD=" + BinPath("../lib/libe2e_worker_faults.so"),
               "GLYD_WORKER_FAULTS=" + path});
  }

  // One row of ones by a small pack of m/save, which m/other has too.
  static v1::LinearRequest Product(const std::string& lease) {
    v1::LinearRequest r;
    r.set_lease_id(lease);
    r.set_pack("model.layers.0.self_attn.q_proj");
    r.set_m(1);
    std::string x;
    for (int i = 0; i < kCols; ++i) x += std::string("\x80\x3f", 2);
    r.set_x_inline(x);
    return r;
  }
  static constexpr int kCols = 128;

  v1::CreateArenaReply arena_reply_;

 private:
  TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  WorkerFaults* faults_ = nullptr;
};

}  // namespace glyd

#endif  // GLYD_TESTS_E2E_CASES_H_
