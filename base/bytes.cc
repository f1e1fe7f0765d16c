#include "base/bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace glyd {

std::string HumanBytes(uint64_t n) {
  if (n < 1000) return absl::StrCat(n, " B");
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double v = static_cast<double>(n) / 1000;
  int u = 0;
  while (v >= 999.95 && u < 5) v /= 1000, ++u;
  return absl::StrFormat("%.1f %s", v, kUnits[u]);
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Printable(text),
                     "\" is not a size: a number, then nothing or one of "
                     "KiB MiB GiB TiB K M G T KB MB GB TB"));
  };
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.'))
    ++digits;
  double value;
  if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &value)) return bad();
  std::string unit = absl::AsciiStrToUpper(absl::StripAsciiWhitespace(text.substr(digits)));
  if (!unit.empty() && unit != "B") {
    static constexpr absl::string_view kLetters = "KMGT";
    const size_t power = kLetters.find(unit[0]);
    const absl::string_view rest = absl::string_view(unit).substr(1);
    if (power == absl::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB"))
      return bad();
    value *= std::pow(rest == "IB" ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  if (!(value >= 0) || value >= 9.2e18) return bad();
  return static_cast<uint64_t>(value);
}

namespace {

// Length of the well-formed UTF-8 sequence at the front of `s`, 0 where there is none.
size_t Utf8Length(absl::string_view s) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t c = at(0);
  const size_t n = c < 0x80                ? 1
                   : c >= 0xC2 && c < 0xE0 ? 2
                   : c >= 0xE0 && c < 0xF0 ? 3
                   : c >= 0xF0 && c < 0xF5 ? 4
                                           : 0;
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if ((c == 0xE0 && at(1) < 0xA0) || (c == 0xED && at(1) > 0x9F) || (c == 0xF0 && at(1) < 0x90) ||
      (c == 0xF4 && at(1) > 0x8F))
    return 0;
  return n;
}

}  // namespace

std::string Printable(absl::string_view data, size_t max) {
  std::string out;
  while (!data.empty()) {
    if (out.size() >= max) return out + "...";
    const uint8_t c = static_cast<uint8_t>(data[0]);
    const size_t n = Utf8Length(data);
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (n == 0 || c < 0x20 || c == 0x7F ||
               (n == 2 && c == 0xC2 && static_cast<uint8_t>(data[1]) < 0xA0)) {
      for (size_t i = 0; i < std::max<size_t>(n, 1); ++i)
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(data[i]));
    } else {
      out.append(data.data(), n);
    }
    data.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

bool IsUtf8(absl::string_view data) {
  while (!data.empty()) {
    const size_t n = Utf8Length(data);
    if (n == 0) return false;
    data.remove_prefix(n);
  }
  return true;
}

std::string Hex(absl::Span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(bytes.size() * 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    out[2 * i] = kDigits[bytes[i] >> 4];
    out[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return out;
}

bool IsValidName(absl::string_view name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace glyd
