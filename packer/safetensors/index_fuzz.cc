#include <cstdint>
#include <cstdlib>
#include <string>

#include "packer/safetensors/checkpoint.h"

// An index that is taken names nothing outside its directory.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto map = glyd::ParseIndex({reinterpret_cast<const char*>(data), size}, "f");
  if (!map.ok()) return 0;
  for (const auto& [tensor, file] : *map)
    if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos)
      std::abort();
  return 0;
}
