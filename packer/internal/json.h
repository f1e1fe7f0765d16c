#ifndef GLYD_PACKER_INTERNAL_JSON_H_
#define GLYD_PACKER_INTERNAL_JSON_H_

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/status_macros.h"

// What every JSON file read here is held to, over simdjson's on-demand parser: one object and
// nothing after it, no key twice in an object (escaped or not), integers that are integers. A value
// that nobody reads is skipped, not judged. Statuses are DataLoss; their text begins with `what`,
// which names the file and the place in it. For .cc files of packer alone: simdjson is slow to
// compile.
namespace glyd::json {

namespace sj = simdjson::ondemand;

inline absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

inline absl::Status Bad(absl::string_view what, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(what, ": ", why));
}
inline absl::Status Bad(absl::string_view what, simdjson::error_code error) {
  return Bad(what, absl::StrCat("not valid JSON here (", simdjson::error_message(error), ")"));
}

// `f(key, value)` for each field; `key` lives as long as the parser.
template <typename F>
absl::Status ForEachField(sj::object object, absl::string_view what, F f) {
  absl::flat_hash_set<absl::string_view> seen;
  for (auto each : object) {
    sj::field field;
    if (auto e = std::move(each).get(field)) return Bad(what, e);
    std::string_view raw;
    if (auto e = field.unescaped_key().get(raw)) return Bad(what, e);
    const absl::string_view key = View(raw);
    if (!seen.insert(key).second)
      return Bad(what, absl::StrCat("key \"", Printable(key), "\" twice"));
    GLYD_RETURN_IF_ERROR(f(key, field.value()));
  }
  return absl::OkStatus();
}

// `f(value)` for each element.
template <typename F>
absl::Status ForEachElement(sj::array array, absl::string_view what, F f) {
  for (auto each : array) {
    sj::value value;
    if (auto e = std::move(each).get(value)) return Bad(what, e);
    GLYD_RETURN_IF_ERROR(f(value));
  }
  return absl::OkStatus();
}

// Parses `text` as one object. Its capacity may grow: the parser reads a little past the end.
template <typename F>
absl::Status ParseObject(std::string& text, absl::string_view what, F f) {
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  sj::parser parser;
  sj::document document;
  if (auto e = parser.iterate(std::string_view(text), text.capacity()).get(document))
    return Bad(what, e);
  sj::object object;
  if (document.get_object().get(object)) return Bad(what, "not a JSON object");
  GLYD_RETURN_IF_ERROR(ForEachField(object, what, f));
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
    return Bad(what, "more text after the JSON object");
  return absl::OkStatus();
}

inline absl::Status GetObject(sj::value v, absl::string_view what, sj::object* out) {
  return v.get_object().get(*out) ? Bad(what, "not an object") : absl::OkStatus();
}
inline absl::Status GetArray(sj::value v, absl::string_view what, sj::array* out) {
  return v.get_array().get(*out) ? Bad(what, "not a list") : absl::OkStatus();
}
inline absl::Status GetString(sj::value v, absl::string_view what, std::string* out) {
  std::string_view s;
  if (v.get_string().get(s)) return Bad(what, "not a string");
  *out = std::string(s);
  return absl::OkStatus();
}
// A plain decimal integer below 2^64: no sign, no fraction, no exponent.
inline absl::Status GetUint(sj::value v, absl::string_view what, uint64_t* out) {
  return v.get_uint64().get(*out) ? Bad(what, "not a whole number from 0 to 2^64 - 1")
                                  : absl::OkStatus();
}
inline absl::Status GetBool(sj::value v, absl::string_view what, bool* out) {
  return v.get_bool().get(*out) ? Bad(what, "neither true nor false") : absl::OkStatus();
}
inline bool IsNull(sj::value v) {
  bool null = false;
  return !v.is_null().get(null) && null;
}

}  // namespace glyd::json

#endif  // GLYD_PACKER_INTERNAL_JSON_H_
