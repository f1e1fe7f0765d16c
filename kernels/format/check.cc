#include <array>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/pack.h"
#include "kernels/host/kernels.h"

namespace glyd {
namespace {

constexpr uint32_t kExceptionBits = 0x007F03FF;  // a place, and what is XORed into the high byte
constexpr uint32_t kWindow = 8;                  // high bytes that mma12 codes
constexpr uint64_t kMaxPadding = 4;              // of exc, in elements
constexpr uint64_t kBlocksLimit = uint64_t{1} << 31;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::DataLossError(absl::StrCat(args...));
}

absl::Status CheckCodes(const PackMeta& meta) {
  if (meta.layout == Layout::kMma12) {
    if (meta.hb > kMaxBase) return Bad("hb is ", meta.hb, ", ", kMaxBase, " at most");
    return absl::OkStatus();
  }
  for (size_t k = 0; k < meta.tiers.size(); ++k)
    if (meta.tiers[k] >> 24 != 0xFF)
      return Bad("tiers: word ", k, " has ", meta.tiers[k] >> 24,
                 " in its last byte, 255 expected");
  std::array<bool, 256> seen = {};
  for (size_t rank = 0; rank < 9; ++rank) {
    const uint32_t e = meta.tiers[rank / 3] >> 8 * (rank % 3) & 0xFF;
    if (seen[e]) return Bad("tiers: exponent ", e, " twice");
    seen[e] = true;
  }
  return absl::OkStatus();
}

// Bytes where nothing is coded; `first` is the place of the first of them in the buffer.
absl::Status CheckZeros(const uint8_t* bytes, uint64_t n, absl::string_view buffer,
                        uint64_t first) {
  for (uint64_t i = 0; i < n; ++i)
    if (bytes[i] != 0)
      return Bad(buffer, ": byte ", first + i, " is ", bytes[i],
                 ", zero expected: nothing is coded there");
  return absl::OkStatus();
}

// The sizes that follow from the shape, and bases that start at `first` and never fall.
absl::Status CheckSizes(const PackView& p, absl::string_view base_name, int32_t first) {
  if (const uint64_t want = DataBytes(p.meta); p.data_bytes != want)
    return Bad("glyd_data has ", p.data_bytes, " bytes, shape [", p.meta.rows, ", ", p.meta.cols,
               "] takes ", want);
  const uint64_t steps = StepCount(p.meta);
  if (p.base_count != steps + 1)
    return Bad(base_name, " has ", p.base_count, " elements, ", steps, " steps take ", steps + 1);
  if (p.base[0] != first) return Bad(base_name, " starts at ", p.base[0], ", ", first, " expected");
  for (uint64_t s = 0; s < steps; ++s)
    if (p.base[s + 1] < p.base[s])
      return Bad(base_name, " falls at step ", s, " from ", p.base[s], " to ", p.base[s + 1]);
  return absl::OkStatus();
}

// Digits of value 3 among the first `digits`, four a byte.
uint64_t CountEscapes(const HostKernels& kernels, const uint8_t* bytes, uint64_t digits) {
  uint64_t n = kernels.count_escapes(bytes, digits / 4);
  for (uint64_t k = digits / 4 * 4; k < digits; ++k) n += (bytes[k >> 2] >> 2 * (k & 3) & 3) == 3;
  return n;
}

// The same, of the 32-bit groups of 16 digits that lie back from `end`.
uint64_t CountEscapesBack(const HostKernels& kernels, const uint8_t* end, uint64_t digits) {
  const uint8_t* full = end - digits / 16 * 4;
  const uint64_t n = kernels.count_escapes(full, static_cast<uint64_t>(end - full));
  return digits % 16 == 0 ? n : n + CountEscapes(kernels, full - 4, digits % 16);
}

absl::Status CheckMma(const PackView& p) {
  GLYD_RETURN_IF_ERROR(CheckSizes(p, "glyd_block_base", kMmaHeadBytes));
  const uint64_t steps = StepCount(p.meta);
  if (p.side_bytes >= kBlocksLimit)
    return Bad("glyd_blocks has ", p.side_bytes, " bytes, ", kBlocksLimit - 1, " at most");
  const uint64_t end = static_cast<uint64_t>(p.base[steps]);
  if (p.side_bytes != end + kMmaTailBytes)
    return Bad("glyd_blocks has ", p.side_bytes, " bytes, glyd_block_base ends at ", end, " and ",
               kMmaTailBytes, " follow");
  GLYD_RETURN_IF_ERROR(CheckZeros(p.side, kMmaHeadBytes, "glyd_blocks", 0));
  GLYD_RETURN_IF_ERROR(CheckZeros(p.side + end, kMmaTailBytes, "glyd_blocks", end));
  std::array<bool, 256> ranked = {};
  for (size_t rank = 0; rank < 9; ++rank)
    ranked[p.meta.tiers[rank / 3] >> 8 * (rank % 3) & 0xFF] = true;
  const HostKernels& kernels = ChosenKernels();
  for (uint64_t s = 0; s < steps; ++s) {
    const uint64_t size = static_cast<uint64_t>(p.base[s + 1] - p.base[s]);
    const uint8_t* block = p.side + p.base[s];
    const uint64_t t1 = CountEscapes(kernels, p.data + s * kMmaStepBytes, kStepWeights);
    const uint64_t d2_bytes = 4 * ((t1 + 15) / 16);
    if (d2_bytes > size)
      return Bad("glyd_blocks: the block of step ", s, " has ", size, " bytes, the digits of its ",
                 t1, " first escapes take ", d2_bytes);
    const uint64_t t2 = CountEscapesBack(kernels, block + size, t1);
    const uint64_t d3_bytes = (t2 + 3) / 4;
    if (d2_bytes + d3_bytes > size)
      return Bad("glyd_blocks: the block of step ", s, " has ", size, " bytes, the digits of its ",
                 t1, " first and ", t2, " second escapes take ", d2_bytes + d3_bytes);
    const uint64_t t3 = CountEscapes(kernels, block, t2);
    if (d2_bytes + d3_bytes + t3 != size)
      return Bad("glyd_blocks: the block of step ", s, " has ", size, " bytes, its ", t1, ", ", t2,
                 " and ", t3, " escapes take ", d2_bytes + d3_bytes + t3);
    const bool d2_rest = t1 % 16 != 0 && LoadLe32(block + size - d2_bytes) >> 2 * (t1 % 16) != 0;
    if (d2_rest || (t2 % 4 != 0 && block[t2 / 4] >> 2 * (t2 % 4) != 0))
      return Bad("glyd_blocks: the block of step ", s, " has digits past its ", d2_rest ? t1 : t2,
                 d2_rest ? " first" : " second", " escapes");
    for (uint64_t k = d3_bytes; k < d3_bytes + t3; ++k)
      if (ranked[block[k]])
        return Bad("glyd_blocks: the block of step ", s, " has exponent ", block[k],
                   " as a third escape, which the tiers hold");
  }
  return absl::OkStatus();
}

// The offset that a weight's code holds.
uint32_t CodedOffset(const uint8_t* step, uint32_t place) {
  const uint32_t lane = place / kLaneWeights, word = place % kLaneWeights / 8, m = place % 8;
  const uint32_t bit = m < 4 ? 8 * m : 8 * ((m - 4 + 3) % 4) + 4;
  return LoadLe32(step + 16 * lane + 4 * word) >> bit & (kWindow - 1);
}

// Exception k of a step, whose one before has place `last`.
absl::Status CheckException(const PackView& p, uint64_t step, int32_t k, uint32_t e, int64_t last) {
  if ((e & ~kExceptionBits) != 0) {
    if ((e & 0xFFFF) >= kStepWeights)
      return Bad("glyd_exc: element ", k, " has place ", e & 0xFFFF, ", ", kStepWeights - 1,
                 " at most");
    return Bad("glyd_exc: element ", k, " is ", e, ", which has bits past the ", kExceptionBits,
               " of an exception");
  }
  const uint32_t place = e & 0xFFFF, high = p.meta.hb ^ e >> 16;
  if (place <= last)
    return Bad("glyd_exc: element ", k, " has place ", place, " after ", last, " in step ", step,
               ": not in order");
  if (high >= p.meta.hb && high < p.meta.hb + kWindow)
    return Bad("glyd_exc: element ", k, " makes a high byte of ", high, ", which a code from ",
               p.meta.hb, " on holds: no exception");
  if (p.data == nullptr) return absl::OkStatus();
  if (const uint32_t offset = CodedOffset(p.data + step * kMma12StepBytes, place); offset != 0)
    return Bad("glyd_data: the code of place ", place, " in step ", step, ", an exception, is ",
               offset, ", 0 expected");
  return absl::OkStatus();
}

absl::Status CheckMma12(const PackView& p) {
  GLYD_RETURN_IF_ERROR(CheckSizes(p, "glyd_exc_base", 0));
  const uint64_t steps = StepCount(p.meta);
  const uint64_t exceptions = static_cast<uint64_t>(p.base[steps]);
  if (p.side_bytes % 16 != 0)
    return Bad("glyd_exc has ", p.side_bytes, " bytes, which are no multiple of 4 elements of 4");
  if (p.side_bytes / 4 != AlignUp(exceptions + 1, kMaxPadding))
    return Bad("glyd_exc has ", p.side_bytes / 4, " elements, glyd_exc_base ends at ", exceptions,
               " and 1 to ", kMaxPadding, " zeros follow");
  for (uint64_t s = 0; s < steps; ++s) {
    int64_t last = -1;
    for (int32_t k = p.base[s]; k < p.base[s + 1]; ++k) {
      const uint32_t e = LoadLe32(p.side + 4 * static_cast<uint64_t>(k));
      GLYD_RETURN_IF_ERROR(CheckException(p, s, k, e, last));
      last = e & 0xFFFF;
    }
  }
  return CheckZeros(p.side + 4 * exceptions, p.side_bytes - 4 * exceptions, "glyd_exc",
                    4 * exceptions);
}

}  // namespace

absl::Status CheckPack(const PackView& pack) {
  if (pack.meta.layout != Layout::kMma && pack.meta.layout != Layout::kMma12)
    return Bad("layout ", static_cast<int>(pack.meta.layout), " is not known");
  if (absl::Status s = CheckShape(pack.meta.rows, pack.meta.cols); !s.ok()) return Bad(s.message());
  GLYD_RETURN_IF_ERROR(CheckCodes(pack.meta));
  return pack.meta.layout == Layout::kMma ? CheckMma(pack) : CheckMma12(pack);
}

}  // namespace glyd
