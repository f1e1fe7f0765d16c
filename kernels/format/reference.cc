#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/internal/limits.h"
#include "kernels/format/pack.h"

// Written in the order of docs/format.md, one step at a time and nothing clever: what the fast code
// must equal.

namespace glyd::reference {
namespace {

constexpr int kEscape = 3;  // a digit that says: the next tier decides
constexpr int kTiers = 3;

int Exponent(uint16_t w) { return w >> 7 & 0xFF; }

// Where weight i of lane l keeps its byte, within a step's bytes after the digits or codes.
int LowByteAt(int q) { return 512 * (q >> 4 & 1) + 16 * (q >> 5) + (q & 15); }

// Digit k of a run of two-bit digits, four a byte.
void PutDigit(uint8_t* bytes, size_t k, int digit) { bytes[k >> 2] |= digit << 2 * (k & 3); }
int GetDigit(const uint8_t* bytes, size_t k) { return bytes[k >> 2] >> 2 * (k & 3) & 3; }

// Digit k of the second tier, laid back from the end of a block of `size` bytes.
size_t TierTwoAt(size_t size, size_t k) { return size - 4 * ((k >> 4) + 1) + ((k & 15) >> 2); }

// Where the first digit of place q is: byte and bit.
int FirstDigitAt(int q) {
  const int lane = q >> 5, i = q & 31;
  return 128 * (i >> 4) + 4 * lane + ((i & 15) >> 2);
}
int FirstDigitBit(int q) { return 2 * (q & 3); }

class MmaCodec {
 public:
  explicit MmaCodec(const PackMeta& meta) : tiers_(meta.tiers) {
    std::fill(std::begin(rank_), std::end(rank_), 3 * kTiers);
    for (int r = 3 * kTiers - 1; r >= 0; --r) rank_[tiers_[r / 3] >> 8 * (r % 3) & 0xFF] = r;
  }

  void EncodeStep(const uint16_t w[kStepWeights], uint8_t* data,
                  std::vector<uint8_t>* blocks) const {
    std::vector<int> d2, d3;
    std::vector<uint8_t> exponents;
    for (int q = 0; q < kStepWeights; ++q) {
      const int rank = rank_[Exponent(w[q])];
      data[FirstDigitAt(q)] |= std::min(rank, kEscape) << FirstDigitBit(q);
      data[kMmaDigitBytes + LowByteAt(q)] = (w[q] & 0x7F) << 1 | w[q ^ 1] >> 15;
      if (rank < 3) continue;
      d2.push_back(std::min(rank - 3, kEscape));
      if (rank < 6) continue;
      d3.push_back(std::min(rank - 6, kEscape));
      if (rank == 9) exponents.push_back(Exponent(w[q]));
    }
    const size_t r0 = (d3.size() + 3) / 4;
    const size_t size = r0 + exponents.size() + 4 * ((d2.size() + 15) / 16);
    const size_t start = blocks->size();
    blocks->resize(start + size);
    uint8_t* block = blocks->data() + start;
    for (size_t k = 0; k < d3.size(); ++k) PutDigit(block, k, d3[k]);
    std::copy(exponents.begin(), exponents.end(), block + r0);
    for (size_t k = 0; k < d2.size(); ++k) block[TierTwoAt(size, k)] |= d2[k] << 2 * (k & 3);
  }

  void DecodeStep(const uint8_t* data, const uint8_t* block, size_t size,
                  uint16_t w[kStepWeights]) const {
    size_t t1 = 0, t2 = 0, t3 = 0;
    // The exponents start after the third digits, so those are counted first.
    size_t third_digits = 0;
    size_t escapes = 0;
    for (int q = 0; q < kStepWeights; ++q)
      escapes += (data[FirstDigitAt(q)] >> FirstDigitBit(q) & 3) == kEscape;
    for (size_t k = 0; k < escapes; ++k)
      third_digits += (block[TierTwoAt(size, k)] >> 2 * (k & 3) & 3) == kEscape;
    const size_t r0 = (third_digits + 3) / 4;
    for (int q = 0; q < kStepWeights; ++q) {
      int tier = 0;
      int digit = data[FirstDigitAt(q)] >> FirstDigitBit(q) & 3;
      if (digit == kEscape) {
        tier = 1;
        digit = block[TierTwoAt(size, t1)] >> 2 * (t1 & 3) & 3;
        ++t1;
        if (digit == kEscape) {
          tier = 2;
          digit = GetDigit(block, t2++);
        }
      }
      const int exponent = digit == kEscape ? block[r0 + t3++] : tiers_[tier] >> 8 * digit & 0xFF;
      const int mantissa = data[kMmaDigitBytes + LowByteAt(q)] >> 1;
      const int sign = data[kMmaDigitBytes + LowByteAt(q ^ 1)] & 1;
      w[q] = sign << 15 | exponent << 7 | mantissa;
    }
  }

 private:
  std::array<uint32_t, 3> tiers_;
  int rank_[256];
};

// Where place q has its sign and its offset. The second four of eight weights keep them in
// different bytes.
struct CodeAt {
  int sign_byte, sign_bit, offset_byte, offset_bit;
};
CodeAt CodePlace(int q) {
  const int lane = q >> 5, word = (q & 31) >> 3, j = q & 3;
  const int at = 16 * lane + 4 * word;
  if ((q & 4) == 0) return {at + j, 7, at + j, 0};
  return {at + j, 3, at + (j + 3) % 4, 4};
}

class Mma12Codec {
 public:
  explicit Mma12Codec(const PackMeta& meta) : hb_(meta.hb) {}

  void EncodeStep(const uint16_t w[kStepWeights], uint8_t* data, std::vector<uint32_t>* exc) const {
    for (int q = 0; q < kStepWeights; ++q) {
      const uint32_t x = w[q] >> 8 & 0x7F;
      const bool coded = x >= hb_ && x <= hb_ + 7;
      const CodeAt at = CodePlace(q);
      data[at.sign_byte] |= w[q] >> 15 << at.sign_bit;
      data[at.offset_byte] |= (coded ? x - hb_ : 0) << at.offset_bit;
      data[kMma12CodeBytes + LowByteAt(q)] = w[q] & 0xFF;
      if (!coded) exc->push_back((hb_ ^ x) << 16 | q);
    }
  }

  void DecodeStep(const uint8_t* data, const uint32_t* exc, size_t count,
                  uint16_t w[kStepWeights]) const {
    for (int q = 0; q < kStepWeights; ++q) {
      const CodeAt at = CodePlace(q);
      const int sign = data[at.sign_byte] >> at.sign_bit & 1;
      const int offset = data[at.offset_byte] >> at.offset_bit & 7;
      w[q] = sign << 15 | (hb_ + offset) << 8 | data[kMma12CodeBytes + LowByteAt(q)];
    }
    for (size_t k = 0; k < count; ++k) w[exc[k] & 0x3FF] ^= (exc[k] >> 16 & 0xFF) << 8;
  }

 private:
  uint32_t hb_;
};

// The first weight of step s of a matrix of `cols` columns.
uint64_t TopLeft(uint64_t s, uint64_t cols) {
  const uint64_t steps_a_row_block = cols / kStepCols;
  return s / steps_a_row_block * kStepRows * cols + s % steps_a_row_block * kStepCols;
}

void Gather(const uint16_t* top_left, uint64_t cols, uint16_t w[kStepWeights]) {
  for (int q = 0; q < kStepWeights; ++q) w[q] = top_left[StepRow(q) * cols + StepCol(q)];
}

}  // namespace

void AddToHistogram(const uint16_t* weights, uint64_t n, uint64_t counts[256]) {
  for (uint64_t i = 0; i < n; ++i) ++counts[Exponent(weights[i])];
}

absl::StatusOr<EncodedPack> Encode(const PackMeta& meta, const uint16_t* weights) {
  GLYD_RETURN_IF_ERROR(CheckShape(meta.rows, meta.cols));
  EncodedPack pack;
  pack.meta = meta;
  pack.data.resize(DataBytes(meta));
  uint16_t w[kStepWeights];
  if (meta.layout == Layout::kMma) {
    const MmaCodec codec(meta);
    pack.side.resize(kMmaHeadBytes);
    pack.base.push_back(kMmaHeadBytes);
    for (uint64_t s = 0; s < StepCount(meta); ++s) {
      Gather(weights + TopLeft(s, meta.cols), meta.cols, w);
      codec.EncodeStep(w, pack.data.data() + s * kMmaStepBytes, &pack.side);
      GLYD_RETURN_IF_ERROR(internal::CheckBlocksBytes(meta, pack.side.size() + kMmaTailBytes));
      pack.base.push_back(static_cast<int32_t>(pack.side.size()));
    }
    pack.side.resize(pack.side.size() + kMmaTailBytes);
    return pack;
  }
  const Mma12Codec codec(meta);
  std::vector<uint32_t> exc;
  pack.base.push_back(0);
  for (uint64_t s = 0; s < StepCount(meta); ++s) {
    Gather(weights + TopLeft(s, meta.cols), meta.cols, w);
    codec.EncodeStep(w, pack.data.data() + s * kMma12StepBytes, &exc);
    GLYD_RETURN_IF_ERROR(internal::CheckExceptions(meta, exc.size()));
    pack.base.push_back(static_cast<int32_t>(exc.size()));
  }
  exc.resize(AlignUp(exc.size() + 1, 4));
  pack.side.resize(exc.size() * sizeof exc[0]);
  std::memcpy(pack.side.data(), exc.data(), pack.side.size());
  return pack;
}

void DecodeSteps(const PackView& pack, uint64_t step, uint64_t count, uint16_t* out,
                 uint64_t stride) {
  const MmaCodec mma(pack.meta);
  const Mma12Codec mma12(pack.meta);
  uint16_t w[kStepWeights];
  for (uint64_t s = step; s < step + count; ++s, out += kStepCols) {
    const int32_t start = pack.base[s], end = pack.base[s + 1];
    if (pack.meta.layout == Layout::kMma) {
      mma.DecodeStep(pack.data + s * kMmaStepBytes, pack.side + start, end - start, w);
    } else {
      const uint32_t* exc = reinterpret_cast<const uint32_t*>(pack.side);
      mma12.DecodeStep(pack.data + s * kMma12StepBytes, exc + start, end - start, w);
    }
    for (int q = 0; q < kStepWeights; ++q) out[StepRow(q) * stride + StepCol(q)] = w[q];
  }
}

void DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows, uint16_t* out) {
  const uint64_t cols = pack.meta.cols, steps = cols / kStepCols;
  for (uint64_t rb = 0; rb < rows / kStepRows; ++rb)
    reference::DecodeSteps(pack, (row0 / kStepRows + rb) * steps, steps,
                           out + rb * kStepRows * cols, cols);
}

}  // namespace glyd::reference
