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
  // kBest: this processor's SHA instructions where it has them, else OpenSSL. Both give the same
  // digests.
  enum class Backend { kBest, kOpenSsl };

  explicit Sha256(Backend backend = Backend::kBest);
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(const void* data, size_t bytes);
  // a.Update and b.Update of two different objects at once: with SHA instructions, which take turns
  // waiting for their own results, about 1.4 times as fast as one after the other for the part that
  // both have.
  static void UpdatePair(Sha256& a, const void* data_a, size_t bytes_a, Sha256& b,
                         const void* data_b, size_t bytes_b);
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
