#ifndef GLYD_KERNELS_SIMT_MEMORY_H_
#define GLYD_KERNELS_SIMT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace glyd::simt {

// What a launch moved to and from one buffer, as a GPU's first-level cache would count it: a warp's
// access is as many sectors as the 32-byte units that its lanes touch.
struct Traffic {
  uint64_t read_sectors = 0, written_sectors = 0;
  uint64_t read_bytes = 0, written_bytes = 0;  // that lanes asked for
};

// The global memory that a launch may touch: named buffers, not owned, that do not overlap. Counts
// add up over launches that have Counts too. One launch at a time.
class Memory {
 public:
  struct Buffer {
    std::string name;
    uintptr_t start;
    size_t bytes;
    bool writable;
    Traffic traffic;
  };

  void AddRead(std::string name, const void* p, size_t bytes);
  void AddWrite(std::string name, void* p, size_t bytes);

  // The buffer that holds all of [p, p + bytes), or null.
  Buffer* Find(const void* p, size_t bytes);
  const Traffic& traffic(const std::string& name) const;  // of a buffer that was added

 private:
  std::vector<Buffer> buffers_;
};

// What a launch did besides.
struct Counts {
  uint64_t shared_accesses = 0;   // by warps, in the fewest turns that their bytes take
  uint64_t shared_conflicts = 0;  // turns more than that
  std::map<std::string, uint64_t> conflicts_at;  // the same by "file:line"
  uint64_t mma = 0;                              // by warps
  uint64_t barriers = 0;                         // of whole blocks
};

}  // namespace glyd::simt

#endif  // GLYD_KERNELS_SIMT_MEMORY_H_
