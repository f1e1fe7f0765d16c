#include "client/cli/cli.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/cord.h"
#include "client/cli/interrupt.h"
#include "glyd/status.h"

namespace glyd::cli {
namespace {

constexpr absl::string_view kReasonUsage = "USAGE";

}  // namespace

void Cli::Print(absl::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);  // what is piped into another program arrives line by line too
}

void Cli::Print(const Json& document) const {
  // Names come from files: bytes that are not UTF-8 must not end in an exception.
  Print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Cli::Say(absl::string_view line) const {
  if (!quiet) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

absl::Status UsageError(absl::string_view text) {
  absl::Status s = absl::InvalidArgumentError(text);
  s.SetPayload(kReasonPayload, absl::Cord(kReasonUsage));
  return s;
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (NotedSignal() != 0) return 128 + NotedSignal();
  const std::string reason = Reason(status);
  if (reason == kReasonUsage) return 2;
  if (reason == kReasonNoDaemon || reason == kReasonConnectionLost) return 3;
  if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) return 4;
  return 1;
}

int DefaultThreads() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace glyd::cli
