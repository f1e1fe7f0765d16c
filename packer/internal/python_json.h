#ifndef GLYD_PACKER_INTERNAL_PYTHON_JSON_H_
#define GLYD_PACKER_INTERNAL_PYTHON_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace glyd {

// `s` as a JSON string the way Python's json.dumps writes it: ASCII alone, what is not as \uXXXX
// (two of them past U+FFFF), a byte that is not UTF-8 as the lone surrogate that Python reads it as
// (U+DC80 to U+DCFF).
std::string PythonString(absl::string_view s);

// The bytes of a JSON string, quotes included, that such a writer made: PythonString backwards, and
// the same for escapes that it does not use. A lone surrogate that is none of its own is refused,
// as is anything that is no string.
std::optional<std::string> FromPythonString(absl::string_view quoted);

// `s` as a JSON string the way safetensors' own writer does: UTF-8 as it is, escapes for what JSON
// demands.
std::string CompactString(absl::string_view s);

// Writes JSON as Python's json.dumps(x, indent=n) formats it.
class PythonJson {
 public:
  explicit PythonJson(int indent) : indent_(indent) {}

  void BeginObject() { Begin('{'); }
  void EndObject() { End('}'); }
  void BeginList() { Begin('['); }
  void EndList() { End(']'); }
  // In an object: the next value's key.
  void Key(absl::string_view key);
  void String(absl::string_view value);
  void Number(uint64_t value);
  void Bool(bool value) { Word(value ? "true" : "false"); }
  void Null() { Word("null"); }

  // All of it, once every object and list is ended.
  std::string Take() { return std::move(out_); }

 private:
  void Begin(char c);
  void End(char c);
  void BeforeValue();
  void Word(absl::string_view word);
  void NewLine();

  const int indent_;
  std::string out_;
  std::vector<bool> filled_;  // of each open object or list: has an element
  bool after_key_ = false;
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_PYTHON_JSON_H_
