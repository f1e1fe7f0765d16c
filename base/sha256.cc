#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/internal/sha256_ni.h"

namespace glyd {
namespace {

constexpr size_t kBlock = 64;
constexpr uint32_t kInitial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

}  // namespace

// Of OpenSSL where evp is set, else ours.
struct Sha256::Context {
  EVP_MD_CTX* evp = nullptr;
  uint32_t state[8];
  uint64_t bytes = 0;     // that came
  uint8_t block[kBlock];  // the last bytes % 64 of them

  explicit Context(Backend backend) {
    Reset();
    if (backend == Backend::kBest && internal::HasShaInstructions()) return;
    evp = EVP_MD_CTX_new();
    // A digest that fails to start means a broken OpenSSL (or no memory): there is nothing to go on
    // with.
    if (evp == nullptr || EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) != 1) std::abort();
  }
  ~Context() { EVP_MD_CTX_free(evp); }

  void Reset() {
    std::copy(std::begin(kInitial), std::end(kInitial), state);
    bytes = 0;
  }

  // Fills up a started block from the front of the data, and takes it where it is full.
  void FillBlock(const uint8_t** data, size_t* n) {
    const size_t held = bytes % kBlock;
    if (held == 0 || *n == 0) return;
    const size_t more = std::min(kBlock - held, *n);
    std::memcpy(block + held, *data, more);
    bytes += more, *data += more, *n -= more;
    if (held + more == kBlock) internal::CompressNi(state, block, 1);
  }
  // With `block` empty, or no bytes: whole blocks, then what is left into `block`.
  void Take(const uint8_t* data, size_t n) {
    if (n == 0) return;
    internal::CompressNi(state, data, n / kBlock);
    std::memcpy(block, data + n / kBlock * kBlock, n % kBlock);
    bytes += n;
  }
  void Finish(uint8_t digest[32]) {
    const uint64_t bits = bytes * 8;
    size_t held = bytes % kBlock;
    block[held++] = 0x80;
    if (held > kBlock - 8) {
      std::memset(block + held, 0, kBlock - held);
      internal::CompressNi(state, block, 1);
      held = 0;
    }
    std::memset(block + held, 0, kBlock - 8 - held);
    for (int i = 0; i < 8; ++i) block[kBlock - 1 - i] = static_cast<uint8_t>(bits >> 8 * i);
    internal::CompressNi(state, block, 1);
    for (int i = 0; i < 32; ++i)
      digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    Reset();
  }
};

Sha256::Sha256(Backend backend) : ctx_(std::make_unique<Context>(backend)) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(const void* data, size_t bytes) {
  if (ctx_->evp != nullptr) {
    EVP_DigestUpdate(ctx_->evp, data, bytes);
    return;
  }
  const uint8_t* p = static_cast<const uint8_t*>(data);
  ctx_->FillBlock(&p, &bytes);
  ctx_->Take(p, bytes);
}

void Sha256::UpdatePair(Sha256& a, const void* data_a, size_t bytes_a, Sha256& b,
                        const void* data_b, size_t bytes_b) {
  if (a.ctx_->evp == nullptr && b.ctx_->evp == nullptr) {
    const uint8_t* p = static_cast<const uint8_t*>(data_a);
    const uint8_t* q = static_cast<const uint8_t*>(data_b);
    a.ctx_->FillBlock(&p, &bytes_a);
    b.ctx_->FillBlock(&q, &bytes_b);
    const size_t both = std::min(bytes_a, bytes_b) / kBlock * kBlock;
    internal::CompressPairNi(a.ctx_->state, p, b.ctx_->state, q, both / kBlock);
    a.ctx_->bytes += both, b.ctx_->bytes += both;
    data_a = p + both, bytes_a -= both;
    data_b = q + both, bytes_b -= both;
  }
  a.Update(data_a, bytes_a);
  b.Update(data_b, bytes_b);
}

Digest Sha256::Finish() {
  Digest d;
  if (ctx_->evp != nullptr) {
    EVP_DigestFinal_ex(ctx_->evp, d.data(), nullptr);
    EVP_DigestInit_ex(ctx_->evp, nullptr, nullptr);
  } else {
    ctx_->Finish(d.data());
  }
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
