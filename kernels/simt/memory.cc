#include "kernels/simt/memory.h"

#include <cstdlib>
#include <utility>

namespace glyd::simt {

void Memory::AddRead(std::string name, const void* p, size_t bytes) {
  buffers_.push_back({std::move(name), reinterpret_cast<uintptr_t>(p), bytes, false, {}});
}

void Memory::AddWrite(std::string name, void* p, size_t bytes) {
  buffers_.push_back({std::move(name), reinterpret_cast<uintptr_t>(p), bytes, true, {}});
}

Memory::Buffer* Memory::Find(const void* p, size_t bytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(p);
  for (Buffer& b : buffers_)
    if (at >= b.start && at - b.start <= b.bytes && bytes <= b.bytes - (at - b.start)) return &b;
  return nullptr;
}

const Traffic& Memory::traffic(const std::string& name) const {
  for (const Buffer& b : buffers_)
    if (b.name == name) return b.traffic;
  std::abort();
}

}  // namespace glyd::simt
