#ifndef GLYD_PACKER_INTERNAL_SCRATCH_H_
#define GLYD_PACKER_INTERNAL_SCRATCH_H_

#include <cstdint>

namespace glyd {

// Memory that a worker uses again and again: fresh pages cost as much as the work on them. It is
// the kernel's own, so that what is let go is gone, whatever an allocator would keep. Not
// thread-safe.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { Release(); }
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&& other) noexcept;

  // At least `bytes`, page-aligned, content undefined; valid until the next call. Throws NoMemory.
  uint8_t* Get(uint64_t bytes);
  // Lets it go where it is more than `bytes`.
  void Trim(uint64_t bytes) {
    if (bytes_ > bytes) Release();
  }

 private:
  void Release();

  uint8_t* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_SCRATCH_H_
