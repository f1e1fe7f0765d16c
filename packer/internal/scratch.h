#ifndef GLYD_PACKER_INTERNAL_SCRATCH_H_
#define GLYD_PACKER_INTERNAL_SCRATCH_H_

#include <cstdint>
#include <memory>

namespace glyd {

// Memory that a worker uses again and again: fresh pages cost as much as the work on them. Not
// thread-safe.
class Scratch {
 public:
  // At least `bytes`, 64-byte aligned, content undefined; valid until the next call.
  uint8_t* Get(uint64_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  uint64_t bytes_ = 0;
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_SCRATCH_H_
