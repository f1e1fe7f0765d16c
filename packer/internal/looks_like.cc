#include "packer/internal/looks_like.h"

#include <errno.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

constexpr size_t kHeadBytes = 64;

bool IsPickle(absl::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

bool IsMarkup(absl::string_view text) {
  return text.size() > 1 && text[0] == '<' &&
         (absl::ascii_isalpha(text[1]) || text[1] == '!' || text[1] == '?');
}

}  // namespace

absl::string_view LooksLike(absl::string_view head) {
  struct Kind {
    absl::string_view start, name;
  };
  static constexpr Kind kKinds[] = {
      {"version https://git-lfs", "a Git LFS pointer: the file itself was not fetched"},
      {"GGUF", "a GGUF file"},
      {"PK\x03\x04", "a zip archive, which PyTorch's .bin and .pt files are"},
      {"\x1f\x8b", "a gzip file"},
      {"\x89HDF", "an HDF5 file"},
  };
  for (const Kind& k : kKinds)
    if (absl::StartsWith(head, k.start)) return k.name;
  if (IsPickle(head)) return "a Python pickle, which PyTorch's older .bin and .pt files are";
  if (IsMarkup(absl::StripLeadingAsciiWhitespace(head))) return "an HTML page";
  return "";
}

absl::string_view LooksLike(int fd) {
  char head[kHeadBytes];
  ssize_t n;
  do {
    n = ::pread(fd, head, sizeof head, 0);
  } while (n < 0 && errno == EINTR);
  return n <= 0 ? "" : LooksLike({head, static_cast<size_t>(n)});
}

absl::StatusOr<std::string> ReadJson(int fd, uint64_t max_bytes, absl::string_view shown) {
  if (const absl::string_view kind = LooksLike(fd); !kind.empty())
    return absl::DataLossError(absl::StrCat(shown, ": not JSON: looks like ", kind));
  return ReadWhole(fd, max_bytes, shown);
}

}  // namespace glyd
