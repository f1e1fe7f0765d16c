#ifndef GLYD_PACKER_INTERNAL_TEXT_H_
#define GLYD_PACKER_INTERNAL_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace glyd {

// "a, b, c and 97 more".
inline std::string ListSome(const std::vector<std::string>& items, size_t max = 10) {
  if (items.size() <= max) return absl::StrJoin(items, ", ");
  return absl::StrCat(absl::StrJoin(items.begin(), items.begin() + static_cast<long>(max), ", "),
                      " and ", items.size() - max, " more");
}

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_TEXT_H_
