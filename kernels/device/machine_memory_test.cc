#include "kernels/device/internal/machine_memory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace glyd::internal {
namespace {

// A made-up machine of 8 GB, 5 of them available.
class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    root_ = ::testing::TempDir() + "/machineXXXXXX";
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    Put("/proc/meminfo",
        "MemTotal:        8000 kB\nMemFree:          100 kB\nMemAvailable:    5000 kB\n");
  }
  ~MachineMemoryTest() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Expect(uint64_t total, uint64_t available) {
    const MachineMemory m = ReadMachineMemory(root_);
    EXPECT_EQ(m.total_bytes, total);
    EXPECT_EQ(m.available_bytes, available);
  }

  std::string root_;
};

TEST_F(MachineMemoryTest, NoGroups) { Expect(8000 * 1024, 5000 * 1024); }

TEST_F(MachineMemoryTest, Version2TakesTheTightestOfTheGroupsAbove) {
  Put("/proc/self/cgroup", "0::/a/b\n");
  Put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Put("/sys/fs/cgroup/a/memory.max", "4096000\n");
  Put("/sys/fs/cgroup/a/memory.current", "3000000\n");
  Put("/sys/fs/cgroup/a/memory.stat",
      "anon 1\ninactive_file 400000\nactive_file 100000\nunevictable 0\n");
  Expect(4096000, 4096000 - 2500000);
  Put("/sys/fs/cgroup/memory.max", "1000\n");
  Put("/sys/fs/cgroup/memory.current", "2000\n");
  Expect(1000, 0);
}

TEST_F(MachineMemoryTest, Version1) {
  Put("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/pod\n0::/\n");
  Put("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "2000000\n");
  Put("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "500000\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Expect(2000000, 1500000);
}

// In a container the path is often the host's: only the mount itself is there.
TEST_F(MachineMemoryTest, ContainerWithTheHostsPath) {
  Put("/proc/self/cgroup", "0::/kubepods/pod1/c1\n");
  Put("/sys/fs/cgroup/memory.max", "3000000\n");
  Put("/sys/fs/cgroup/memory.current", "1000000\n");
  Expect(3000000, 2000000);
}

TEST_F(MachineMemoryTest, ProcessorNames) {
  EXPECT_EQ(ReadProcessorName(root_), "unknown processor");
  Put("/proc/cpuinfo", "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A Fast One @ 3 GHz\n");
  EXPECT_EQ(ReadProcessorName(root_), "A Fast One @ 3 GHz");
}

}  // namespace
}  // namespace glyd::internal
