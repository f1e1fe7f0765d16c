#include <algorithm>

#include "kernels/format/internal/fast.h"
#include "kernels/format/pack.h"

namespace glyd {
namespace internal {
namespace {

// Steps that are decoded together before their rows are copied out in runs of 256 bytes: written
// one by one, steps would fill half a cache line of 64 rows each, which are often a power of two
// apart.
constexpr uint64_t kTileSteps = 8;
constexpr uint64_t kTileCols = kTileSteps * kStepCols;

class Decoder {
 public:
  Decoder(const HostKernels& kernels, const PackView& pack)
      : kernels_(kernels),
        pack_(pack),
        codes_(pack.meta.layout == Layout::kMma ? StepCodes{.tiers = pack.meta.tiers}
                                                : StepCodes::ForMma12(pack.meta.hb)) {}

  void Run(uint64_t step, uint64_t count, uint16_t* out, uint64_t stride) const {
    const StepRun run{stride, count};
    const int32_t* base = pack_.base + step;
    if (pack_.meta.layout == Layout::kMma)
      kernels_.decode_mma(codes_, pack_.data + step * kMmaStepBytes, pack_.side, base, run, out);
    else
      kernels_.decode_mma12(codes_, pack_.data + step * kMma12StepBytes,
                            reinterpret_cast<const uint32_t*>(pack_.side), base, run, out);
  }

 private:
  const HostKernels& kernels_;
  const PackView& pack_;
  const StepCodes codes_;
};

}  // namespace

void DecodeStepsWith(const HostKernels& kernels, const PackView& pack, uint64_t step,
                     uint64_t count, uint16_t* out, uint64_t stride) {
  Decoder(kernels, pack).Run(step, count, out, stride);
}

void DecodeRowsWith(const HostKernels& kernels, const PackView& pack, uint64_t row0, uint64_t rows,
                    uint16_t* out) {
  const Decoder decoder(kernels, pack);
  const uint64_t cols = pack.meta.cols, steps = cols / kStepCols;
  alignas(64) uint16_t tile[kStepRows * kTileCols];
  for (uint64_t rb = 0; rb < rows / kStepRows; ++rb)
    for (uint64_t s = 0; s < steps; s += kTileSteps) {
      const uint64_t n = std::min(kTileSteps, steps - s);
      decoder.Run((row0 / kStepRows + rb) * steps + s, n, tile, kTileCols);
      uint16_t* to = out + rb * kStepRows * cols + s * kStepCols;
      kernels.copy_rows(tile, kTileCols, to, cols, n);
    }
}

}  // namespace internal

void DecodeSteps(const PackView& pack, uint64_t step, uint64_t count, uint16_t* out,
                 uint64_t stride) {
  internal::DecodeStepsWith(ChosenKernels(), pack, step, count, out, stride);
}

void DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows, uint16_t* out) {
  internal::DecodeRowsWith(ChosenKernels(), pack, row0, rows, out);
}

}  // namespace glyd
