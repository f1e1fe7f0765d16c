#ifndef GLYD_SERVER_CORE_LOG_H_
#define GLYD_SERVER_CORE_LOG_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace glyd {

// Structured log lines on stderr: an event and its fields, as text or as a JSON object a line.
// Thread-safe. Values are made safe to print; callers log no token, handle or address.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(absl::string_view k, const absl::AlphaNum& v) : key(k), value(v.Piece()) {}
  absl::string_view key;
  std::string value;
};

// Once, before the first line. `program` stands in every line.
void InitLog(bool json, LogLevel least, const std::string& program);
void Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_LOG_H_
