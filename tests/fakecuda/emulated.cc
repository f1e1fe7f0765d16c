#include "kernels/cuda/emulated.h"

#include "tests/fakecuda/fake.h"

// The project's kernels: a launch runs their emulation, over what is mapped and no more.

namespace fakecuda {
namespace {

using glyd::gpu::EmulatedKernel;

Result Stray(const EmulatedKernel& k, const std::string& why, Result r) {
  Log(std::string("broken rule: ") + k.name + ": " + why);
  return r;
}

Result Emulate(const EmulatedKernel& k, const unsigned grid[3], const unsigned block[3],
               unsigned shared_bytes, void** parameters) {
  if (grid[2] != 1 || block[1] != 1 || block[2] != 1 || static_cast<int>(block[0]) != k.threads)
    return Stray(k, "a block of " + std::to_string(block[0]) + " threads", kLaunchFailed);
  if (shared_bytes < k.shared_bytes)
    return Stray(k, std::to_string(shared_bytes) + " bytes of shared memory", kIllegalAddress);
  glyd::simt::Memory memory;
  for (const auto& [at, m] : S().mappings) {
    void* p = reinterpret_cast<void*>(at);
    const std::string name = "memory at " + std::to_string(at);
    if (m.access == 0 || !OwnerLives(m)) continue;
    if (m.access == kAccessReadWrite)
      memory.AddWrite(name, p, m.bytes);
    else
      memory.AddRead(name, p, m.bytes);
  }
  for (const auto& [at, bytes] : S().pinned)
    memory.AddWrite("pinned memory at " + std::to_string(at), reinterpret_cast<void*>(at), bytes);
  glyd::simt::Launch launch;
  launch.grid_x = static_cast<int>(grid[0]);
  launch.grid_y = static_cast<int>(grid[1]);
  launch.memory = &memory;
  const std::string error = k.run(launch, parameters[0]);
  return error.empty() ? kSuccess : Stray(k, error, kIllegalAddress);
}

const bool registered = [] {
  for (const EmulatedKernel& k : glyd::gpu::EmulatedKernels())
    Kernels().push_back(
        {k.name,
         {k.args_bytes},
         [&k](const unsigned* grid, const unsigned* block, unsigned shared_bytes,
              void** parameters) { return Emulate(k, grid, block, shared_bytes, parameters); },
         k.threads});
  return true;
}();

}  // namespace
}  // namespace fakecuda
