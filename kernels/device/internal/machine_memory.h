#ifndef GLYD_KERNELS_DEVICE_INTERNAL_MACHINE_MEMORY_H_
#define GLYD_KERNELS_DEVICE_INTERNAL_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace glyd::internal {

// Main memory as this process may use it: the machine's, or less where a control group (version 1
// or 2) has a limit.
struct MachineMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // what can be had now, the page cache given up
};

// `root` is prefixed to /proc and /sys: "" but in tests. What cannot be read sets no limit.
MachineMemory ReadMachineMemory(absl::string_view root = "");

// The processor's name in /proc/cpuinfo, or "unknown processor".
std::string ReadProcessorName(absl::string_view root = "");

}  // namespace glyd::internal

#endif  // GLYD_KERNELS_DEVICE_INTERNAL_MACHINE_MEMORY_H_
