#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/format/internal/fast.h"
#include "kernels/format/pack.h"

// Bytes as a pack's buffers: what the checks let through decodes, by the reference and by every
// target, to the same weights, and packs again to the same bytes. The first bytes choose layout,
// shape and codes.
namespace {

constexpr size_t kHead = 16;

template <typename T>
std::vector<T> Take(const uint8_t** data, size_t* size, size_t bytes) {
  bytes = std::min(bytes, *size) / sizeof(T) * sizeof(T);
  std::vector<T> out(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(out.data(), *data, bytes);
  *data += bytes;
  *size -= bytes;
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHead) return 0;
  glyd::PackMeta meta;
  meta.layout = data[0] & 1 ? glyd::Layout::kMma12 : glyd::Layout::kMma;
  meta.rows = 64 * (1 + data[1] % 2);
  meta.cols = 16 * (1 + data[2] % 3);
  meta.hb = data[3];
  for (int k = 0; k < 3; ++k) std::memcpy(&meta.tiers[k], data + 4 + 4 * k, 4);
  data += kHead;
  size -= kHead;
  const auto base = Take<int32_t>(&data, &size, 4 * (glyd::StepCount(meta) + 1));
  const auto packed = Take<uint8_t>(&data, &size, glyd::DataBytes(meta));
  // 4-byte aligned as the contract wants it.
  auto side = Take<uint32_t>(&data, &size, size);

  glyd::PackView view;
  view.meta = meta;
  view.base = base.data();
  view.base_count = base.size();
  view.data = packed.data();
  view.data_bytes = packed.size();
  view.side = reinterpret_cast<const uint8_t*>(side.data());
  view.side_bytes = 4 * side.size();
  if (!glyd::CheckPack(view).ok()) return 0;
  std::vector<uint16_t> a(meta.rows * meta.cols), b(a.size());
  glyd::reference::DecodeRows(view, 0, meta.rows, a.data());
  for (const glyd::HostTarget target : glyd::AvailableTargets()) {
    glyd::internal::DecodeRowsWith(glyd::KernelsFor(target), view, 0, meta.rows, b.data());
    if (a != b) std::abort();
  }
  const auto again = glyd::reference::Encode(meta, a.data());
  if (!again.ok() || again->data != packed || again->base != base ||
      again->side.size() != view.side_bytes ||
      std::memcmp(again->side.data(), view.side, view.side_bytes) != 0)
    std::abort();
  return 0;
}
