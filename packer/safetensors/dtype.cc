#include "packer/safetensors/dtype.h"

namespace glyd {
namespace {

// In the order in which files hold them (docs/format.md, "safetensors").
constexpr DtypeInfo kDtypes[] = {
    {"U64", 64, 0},  {"I64", 64, 1},     {"F64", 64, 2},     {"C64", 64, 3},     {"F32", 32, 4},
    {"U32", 32, 5},  {"I32", 32, 6},     {"BF16", 16, 7},    {"F16", 16, 8},     {"U16", 16, 9},
    {"I16", 16, 10}, {"F8_E8M0", 8, 11}, {"F8_E4M3", 8, 12}, {"F8_E5M2", 8, 13}, {"I8", 8, 14},
    {"U8", 8, 15},   {"F6_E3M2", 6, 16}, {"F6_E2M3", 6, 17}, {"F4", 4, 18},      {"BOOL", 8, 19},
};

}  // namespace

const DtypeInfo* FindDtype(absl::string_view name) {
  for (const DtypeInfo& d : kDtypes)
    if (d.name == name) return &d;
  return nullptr;
}

}  // namespace glyd
