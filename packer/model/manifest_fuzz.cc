#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/format/pack.h"
#include "packer/model/manifest.h"

// A manifest that is taken has shapes that packs can have, and comes back from what is written of
// it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto m = glyd::Manifest::Parse({reinterpret_cast<const char*>(data), size}, "f");
  if (!m.ok()) return 0;
  for (const glyd::ManifestPack& p : m->packs)
    if (!glyd::CheckShape(p.meta.rows, p.meta.cols).ok() || p.members.empty()) std::abort();
  const std::string text = m->ToJson();
  const auto again = glyd::Manifest::Parse(text, "f");
  if (!again.ok() || again->ToJson() != text) std::abort();
  return 0;
}
