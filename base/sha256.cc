#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

#include "base/bytes.h"

namespace glyd {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  // A digest that fails to start means a broken OpenSSL (or no memory): there is nothing to go on
  // with.
  Context() {
    if (evp == nullptr || EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) != 1) std::abort();
  }
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : ctx_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(const void* data, size_t bytes) { EVP_DigestUpdate(ctx_->evp, data, bytes); }

Digest Sha256::Finish() {
  Digest d;
  EVP_DigestFinal_ex(ctx_->evp, d.data(), nullptr);
  EVP_DigestInit_ex(ctx_->evp, nullptr, nullptr);
  return d;
}

std::string Sha256::FinishHex() {
  const Digest d = Finish();
  return Hex(d);
}

std::string Sha256Hex(const void* data, size_t bytes) {
  Sha256 h;
  h.Update(data, bytes);
  return h.FinishHex();
}

}  // namespace glyd
