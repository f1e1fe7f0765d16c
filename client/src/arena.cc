#include "glyd/arena.h"

#include "client/src/attached.h"

namespace glyd {

Arena::Arena(std::unique_ptr<internal::MappedArena> mapped) : mapped_(std::move(mapped)) {}
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;
Arena::~Arena() = default;

const std::string& Arena::id() const { return mapped_->id(); }
uint8_t* Arena::data() const { return mapped_->data(); }
uint64_t Arena::bytes() const { return mapped_->bytes(); }

}  // namespace glyd
