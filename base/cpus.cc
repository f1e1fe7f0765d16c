#include "base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace glyd {
namespace {

// cpu.max of the process's own cgroup and of those above it: "QUOTA PERIOD" or "max PERIOD".
int QuotaCpus() {
  int least = 1 << 20;
  std::ifstream self("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(self, line);)
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  for (;;) {
    std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      least = std::min(least, std::max(1, static_cast<int>(std::stod(quota) / period + 0.999)));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

int AvailableCpus() {
  int n = static_cast<int>(std::thread::hardware_concurrency());
  // Large enough for any machine that the kernel of today runs on.
  constexpr int kMaxCpus = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  if (set != nullptr && ::sched_getaffinity(0, bytes, set) == 0) n = CPU_COUNT_S(bytes, set);
  if (set != nullptr) CPU_FREE(set);
  return std::max(1, std::min(n, QuotaCpus()));
}

}  // namespace glyd
