#ifndef GLYD_BASE_SHA256_H_
#define GLYD_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace glyd {

using Digest = std::array<uint8_t, 32>;

// SHA-256 of a stream. Not thread-safe; one thread at a time may use an object.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(const void* data, size_t bytes);
  // The digest of all that came; the object is then as new.
  Digest Finish();
  // Finish, in lower-case hex.
  std::string FinishHex();

 private:
  struct Context;
  std::unique_ptr<Context> ctx_;
};

std::string Sha256Hex(const void* data, size_t bytes);

}  // namespace glyd

#endif  // GLYD_BASE_SHA256_H_
