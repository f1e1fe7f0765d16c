#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "packer/safetensors/header.h"

// What the reader takes, a strict JSON parser takes too, with as many tensors (a key that is there
// twice would be lost there), and its tensors lie back to back.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string json(reinterpret_cast<const char*>(data), size);
  // Data that is as long as the largest number could mean is tried by the seeds' own numbers.
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{12}, uint64_t{1000}}) {
    const auto tensors = glyd::ParseHeader(json, 1000, 1000 + bytes, "f");
    if (!tensors.ok()) continue;
    const auto other = nlohmann::json::parse(json, nullptr, false);
    if (other.is_discarded() || !other.is_object()) std::abort();
    if (other.size() - other.count("__metadata__") != tensors->size()) std::abort();
    uint64_t at = 1000;
    for (const glyd::StoredTensor& t : *tensors) {
      if (t.offset != at || !other.contains(t.name)) std::abort();
      at += t.bytes;
    }
    if (at != 1000 + bytes) std::abort();
  }
  return 0;
}
