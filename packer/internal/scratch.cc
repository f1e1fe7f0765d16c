#include "packer/internal/scratch.h"

#include <new>

namespace glyd {
namespace {

constexpr std::align_val_t kAlign{64};

}  // namespace

void Scratch::Free::operator()(uint8_t* p) const { ::operator delete(p, kAlign); }

uint8_t* Scratch::Get(uint64_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    memory_.reset(static_cast<uint8_t*>(::operator new(bytes, kAlign)));
    bytes_ = bytes;
  }
  return memory_.get();
}

}  // namespace glyd
