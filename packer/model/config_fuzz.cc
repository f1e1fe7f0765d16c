#include <cstdint>
#include <string>

#include "packer/model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)glyd::ModelConfig::Parse({reinterpret_cast<const char*>(data), size}, "f");
  return 0;
}
