#include "packer/internal/python_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

}  // namespace

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
