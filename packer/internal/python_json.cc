#include "packer/internal/python_json.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace glyd {
namespace {

// The short escapes that both writers use; 0 for any other character.
char ShortEscape(char c) {
  switch (c) {
    case '"':
    case '\\':
      return c;
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

// Takes one code point off the front of `s`; of a byte that starts no well-formed sequence, the
// surrogate for it.
uint32_t TakeCodePoint(absl::string_view* s) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>((*s)[i]); };
  const uint8_t c = at(0);
  const size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
  bool good = n != 0 && s->size() >= n;
  uint32_t v = n < 2 ? c : c & (0x7F >> n);
  for (size_t i = 1; good && i < n; ++i) {
    good = (at(i) & 0xC0) == 0x80;
    v = v << 6 | (at(i) & 0x3F);
  }
  good = good && !(n == 3 && (v < 0x800 || (v >= 0xD800 && v < 0xE000))) &&
         !(n == 4 && (v < 0x10000 || v > 0x10FFFF));
  s->remove_prefix(good ? n : 1);
  return good ? v : 0xDC00 + c;
}

void AppendUtf8(uint32_t v, std::string* out) {
  const auto byte = [out](uint32_t b) { out->push_back(static_cast<char>(b)); };
  if (v < 0x80) return byte(v);
  if (v < 0x800) {
    byte(0xC0 | v >> 6);
  } else if (v < 0x10000) {
    byte(0xE0 | v >> 12);
    byte(0x80 | (v >> 6 & 0x3F));
  } else {
    byte(0xF0 | v >> 18);
    byte(0x80 | (v >> 12 & 0x3F));
    byte(0x80 | (v >> 6 & 0x3F));
  }
  byte(0x80 | (v & 0x3F));
}

// Takes four hex digits off the front of `s`.
bool TakeHex4(absl::string_view* s, uint32_t* v) {
  const absl::string_view digits = s->substr(0, 4);
  s->remove_prefix(digits.size());
  return digits.size() == 4 && absl::c_all_of(digits, absl::ascii_isxdigit) &&
         absl::SimpleHexAtoi(digits, v);
}

// What follows "\\u"; of a pair of surrogates, both.
bool TakeUnicode(absl::string_view* s, std::string* out) {
  uint32_t v, low;
  if (!TakeHex4(s, &v)) return false;
  if (v >= 0xDC80 && v <= 0xDCFF) {
    out->push_back(static_cast<char>(v - 0xDC00));
    return true;
  }
  if (v >= 0xD800 && v < 0xDC00) {
    if (!absl::ConsumePrefix(s, "\\u") || !TakeHex4(s, &low) || low < 0xDC00 || low > 0xDFFF)
      return false;
    v = 0x10000 + ((v - 0xD800) << 10 | (low - 0xDC00));
  } else if (v >= 0xDC00 && v < 0xE000) {
    return false;
  }
  AppendUtf8(v, out);
  return true;
}

}  // namespace

std::optional<std::string> FromPythonString(absl::string_view s) {
  if (!absl::ConsumePrefix(&s, "\"") || !absl::ConsumeSuffix(&s, "\"")) return std::nullopt;
  std::string out;
  while (!s.empty()) {
    const char c = s[0];
    s.remove_prefix(1);
    if (c != '\\') {
      if (c == '"' || static_cast<uint8_t>(c) < 0x20) return std::nullopt;
      out += c;
      continue;
    }
    if (s.empty()) return std::nullopt;
    const char e = s[0];
    s.remove_prefix(1);
    static constexpr absl::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(e); i != absl::string_view::npos)
      out += kMeanings[i];
    else if (e != 'u' || !TakeUnicode(&s, &out))
      return std::nullopt;
  }
  return out;
}

std::string PythonString(absl::string_view s) {
  std::string out = "\"";
  while (!s.empty()) {
    const uint32_t v = TakeCodePoint(&s);
    if (const char e = v < 0x80 ? ShortEscape(static_cast<char>(v)) : 0; e != 0)
      out += {'\\', e};
    else if (v >= 0x20 && v < 0x7F)
      out += static_cast<char>(v);
    else if (v < 0x10000)
      absl::StrAppendFormat(&out, "\\u%04x", v);
    else
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + ((v - 0x10000) >> 10),
                            0xDC00 + ((v - 0x10000) & 0x3FF));
  }
  out += '"';
  return out;
}

std::string CompactString(absl::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (const char e = ShortEscape(c); e != 0)
      out += {'\\', e};
    else if (static_cast<uint8_t>(c) < 0x20)
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
    else
      out += c;
  }
  out += '"';
  return out;
}

void PythonJson::NewLine() {
  out_ += '\n';
  out_.append(filled_.size() * static_cast<size_t>(indent_), ' ');
}

void PythonJson::BeforeValue() {
  if (std::exchange(after_key_, false) || filled_.empty()) return;
  if (filled_.back()) out_ += ',';
  filled_.back() = true;
  NewLine();
}

void PythonJson::Begin(char c) {
  BeforeValue();
  out_ += c;
  filled_.push_back(false);
}

void PythonJson::End(char c) {
  const bool filled = filled_.back();
  filled_.pop_back();
  if (filled) NewLine();
  out_ += c;
}

void PythonJson::Key(absl::string_view key) {
  BeforeValue();
  absl::StrAppend(&out_, PythonString(key), ": ");
  after_key_ = true;
}

void PythonJson::String(absl::string_view value) { Word(PythonString(value)); }
void PythonJson::Number(uint64_t value) { Word(absl::StrCat(value)); }

void PythonJson::Word(absl::string_view word) {
  BeforeValue();
  absl::StrAppend(&out_, word);
}

}  // namespace glyd
