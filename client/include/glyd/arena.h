#ifndef GLYD_ARENA_H_
#define GLYD_ARENA_H_

#include <cstdint>
#include <memory>
#include <string>

namespace glyd {

namespace internal {
class MappedArena;
struct Peek;
}  // namespace internal

// Memory that the daemon allocated and lent to this session, mapped read-write here: the daemon
// reads a product's x from it and writes y into it. Zeroed at first. Destruction unmaps and gives
// it back; it ends with the session in any case.
//
// The object may be used by several threads; what they and a product under way do to the same bytes
// is theirs to order.
class Arena {
 public:
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  const std::string& id() const;
  uint8_t* data() const;  // 4096-byte aligned at least
  uint64_t bytes() const;

 private:
  friend class Client;
  friend struct internal::Peek;
  explicit Arena(std::unique_ptr<internal::MappedArena> mapped);

  std::unique_ptr<internal::MappedArena> mapped_;
};

// A place in an arena; a view. `offset` is a multiple of 16.
struct ArenaPlace {
  const Arena* arena = nullptr;
  uint64_t offset = 0;
};

}  // namespace glyd

#endif  // GLYD_ARENA_H_
