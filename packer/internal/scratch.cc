#include "packer/internal/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "packer/internal/no_memory.h"

namespace glyd {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

Scratch::Scratch(Scratch&& other) noexcept { *this = std::move(other); }

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

uint8_t* Scratch::Get(uint64_t bytes) {
  if (bytes <= bytes_ && memory_ != nullptr) return memory_;
  Release();
  const uint64_t whole = std::max(AlignUp(bytes, kPage), kPage);
  void* const p =
      ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw NoMemory(bytes);
  memory_ = static_cast<uint8_t*>(p);
  bytes_ = whole;
  return memory_;
}

void Scratch::Release() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
  memory_ = nullptr;
  bytes_ = 0;
}

}  // namespace glyd
