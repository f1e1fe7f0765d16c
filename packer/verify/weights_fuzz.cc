#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/format/internal/fast.h"
#include "kernels/format/pack.h"

// Bytes as weights: every target packs them in both layouts as the reference does; the packs pass
// the checks, and reference and targets give every bit back.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint64_t rows = 64 * (1 + data[0] % 2), cols = 16 * (1 + data[1] % 9);
  std::vector<uint16_t> w(rows * cols);
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t at = 2 + 2 * i % (size - 1);
    w[i] = static_cast<uint16_t>(data[at % size] | data[(at + 1) % size] << 8);
  }
  for (const glyd::Layout layout : {glyd::Layout::kMma, glyd::Layout::kMma12}) {
    const auto pack = glyd::Encode(layout, rows, cols, w.data());
    if (!pack.ok() || !glyd::CheckPack(pack->view()).ok()) std::abort();
    std::vector<uint16_t> back(w.size());
    glyd::reference::DecodeRows(pack->view(), 0, rows, back.data());
    if (back != w) std::abort();
    const auto same = glyd::reference::Encode(pack->meta, w.data());
    if (!same.ok()) std::abort();
    glyd::EncodedPack by_target;
    for (const glyd::HostTarget target : glyd::AvailableTargets()) {
      const glyd::HostKernels& kernels = glyd::KernelsFor(target);
      if (!glyd::internal::EncodeWith(kernels, pack->meta, w.data(), cols, &by_target).ok() ||
          same->data != by_target.data || same->side != by_target.side ||
          same->base != by_target.base)
        std::abort();
      back.assign(back.size(), 0);
      glyd::internal::DecodeRowsWith(kernels, pack->view(), 0, rows, back.data());
      if (back != w) std::abort();
    }
  }
  return 0;
}
