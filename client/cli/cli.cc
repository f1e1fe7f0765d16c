#include "client/cli/cli.h"

#include <cerrno>
#include <cstdio>

#include "base/reason.h"
#include "client/cli/interrupt.h"
#include "glyd/status.h"

namespace glyd::cli {
namespace {

constexpr absl::string_view kReasonUsage = "USAGE";

}  // namespace

absl::StatusOr<Client> Cli::Connect() const {
  absl::StatusOr<Client> client = Client::Connect(connect);
  if (absl::IsInvalidArgument(client.status())) return UsageError(client.status().message());
  return client;
}

void Cli::Print(absl::string_view text) const {
  errno = 0;
  printed_ = true;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);  // what is piped into another program arrives line by line too
  if (std::ferror(stdout) != 0 && output_errno_ == 0) output_errno_ = errno;
}

void Cli::PrintJson(const Json& document) const {
  // Names come from files: bytes that are not UTF-8 must not end in an exception.
  Print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Cli::PrintFailure(const absl::Status& status) const {
  if (!json || printed_) return;
  const std::string reason = Reason(status);
  PrintJson({{"error", std::string(status.message())},
             {"reason", reason.empty() ? absl::StatusCodeToString(status.code()) : reason}});
}

void Cli::Say(absl::string_view line) const {
  if (!quiet) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

absl::Status UsageError(absl::string_view text) {
  return WithReason(absl::InvalidArgumentError(text), kReasonUsage);
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

}  // namespace glyd::cli
