#ifndef GLYD_CLIENT_CLI_CLI_H_
#define GLYD_CLIENT_CLI_CLI_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glyd/client.h"

namespace glyd::cli {

// Objects keep the order in which their fields were put.
using Json = nlohmann::ordered_json;

// What every verb works with: the global options, the daemon, and where results and talk go. A verb
// is a file with one Add function (verbs.h), which declares its options and, where it is the one
// asked for, sets `run`.
class Cli {
 public:
  // Options; valid once the command line is parsed.
  ConnectOptions connect;
  bool server_given = false;  // on the command line, not by the environment
  bool json = false;
  bool quiet = false;

  // A server or TLS files that no connection can be made with are wrong usage.
  absl::StatusOr<Client> Connect() const;

  // Results, on stdout: for people where not -o json, one document where it is.
  void Print(absl::string_view text) const;
  void PrintJson(const Json& document) const;
  // With -o json, a document of the failure where none was printed.
  void PrintFailure(const absl::Status& status) const;
  // Why a result did not reach its file: of the first failure, 0 where there was none.
  int output_errno() const { return output_errno_; }
  // Talk, a line on stderr; nothing with -q.
  void Say(absl::string_view line) const;

 private:
  mutable int output_errno_ = 0;
  mutable bool printed_ = false;
};

// A usage error that only the verb can see: exit code 2.
absl::Status UsageError(absl::string_view text);

// docs/design.md, "Exit codes".
int ExitCode(const absl::Status& status);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_CLI_H_
