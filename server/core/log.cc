#include "server/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace glyd {
namespace {

bool g_json = false;
std::string g_program = "glydd";

spdlog::level::level_enum ToSpd(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

}  // namespace

void InitLog(bool json, LogLevel least, const std::string& program) {
  g_json = json;
  g_program = program;
  auto logger =
      std::make_shared<spdlog::logger>("glyd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  // In JSON the message is the rest of the object.
  logger->set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                           : "%Y-%m-%d %H:%M:%S.%e %l %v");
  logger->set_level(ToSpd(least));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(ToSpd(level))) return;
  std::string line;
  if (g_json) {
    nlohmann::json object = {{"program", g_program}, {"event", std::string(event)}};
    for (const LogField& f : fields) object[std::string(f.key)] = f.value;
    line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    line = line.substr(1, line.size() - 2);
  } else {
    line = absl::StrCat(g_program, ": ", event);
    for (const LogField& f : fields) {
      const std::string value = Printable(f.value, 2000);
      const bool quote = value.empty() || value.find(' ') != std::string::npos;
      absl::StrAppend(&line, " ", f.key, "=", quote ? "\"" : "", value, quote ? "\"" : "");
    }
  }
  spdlog::log(ToSpd(level), "{}", line);
}

}  // namespace glyd
