#include "kernels/device/internal/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace glyd::internal {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  uint64_t n;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadText(path)), &n)) return std::nullopt;
  return n;
}

// The number after `key` in a text of lines "key number" or "key: number kB".
uint64_t Field(const std::string& text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key) || line.empty() || (line[0] != ' ' && line[0] != ':'))
      continue;
    absl::ConsumePrefix(&line, ":");
    const bool kilobytes = absl::ConsumeSuffix(&line, " kB");
    uint64_t n;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &n)) return kilobytes ? n * 1024 : n;
  }
  return 0;
}

// The files of one version of control groups.
struct GroupFiles {
  const char* mount;
  const char *limit, *usage, *inactive, *active;
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file",
                                  "total_active_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                                  "active_file"};

// Lowers `m` to the limits of the group at `path` and of all above it. In a container the path may
// be the host's, with nothing there: then only the mount's own files are found.
void ApplyGroup(absl::string_view root, const GroupFiles& files, std::string path,
                MachineMemory* m) {
  for (;;) {
    const std::string dir = absl::StrCat(root, files.mount, path == "/" ? "" : path, "/");
    if (const auto limit = ReadNumber(dir + files.limit)) {
      m->total_bytes = std::min(m->total_bytes, *limit);
      const std::string stat = ReadText(dir + "memory.stat");
      const uint64_t used = ReadNumber(dir + files.usage).value_or(0);
      const uint64_t cache = Field(stat, files.inactive) + Field(stat, files.active);
      const uint64_t held = used > cache ? used - cache : 0;
      m->available_bytes = std::min(m->available_bytes, *limit > held ? *limit - held : 0);
    }
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

MachineMemory ReadMachineMemory(absl::string_view root) {
  const std::string meminfo = ReadText(absl::StrCat(root, "/proc/meminfo"));
  MachineMemory m{Field(meminfo, "MemTotal"), Field(meminfo, "MemAvailable")};
  if (m.total_bytes == 0) m.total_bytes = kNoLimit;
  if (m.available_bytes == 0) m.available_bytes = m.total_bytes;
  const std::string groups = ReadText(absl::StrCat(root, "/proc/self/cgroup"));
  for (const absl::string_view line : absl::StrSplit(groups, '\n')) {
    const std::vector<std::string> part = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (part.size() != 3 || part[2].empty() || part[2][0] != '/') continue;
    if (part[0] == "0" && part[1].empty()) ApplyGroup(root, kVersion2, part[2], &m);
    if (part[1] == "memory") ApplyGroup(root, kVersion1, part[2], &m);
  }
  return m;
}

std::string ReadProcessorName(absl::string_view root) {
  for (const absl::string_view line :
       absl::StrSplit(ReadText(absl::StrCat(root, "/proc/cpuinfo")), '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(field.first);
    if (key == "model name" || key == "Model" || key == "cpu model")
      return std::string(absl::StripAsciiWhitespace(field.second));
  }
  return "unknown processor";
}

}  // namespace glyd::internal
