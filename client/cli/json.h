#ifndef GLYD_CLIENT_CLI_JSON_H_
#define GLYD_CLIENT_CLI_JSON_H_

#include "absl/time/time.h"
#include "client/cli/cli.h"
#include "glyd/info.h"

namespace glyd::cli {

// What -o json prints of the daemon's things. Times are RFC 3339 in UTC, or null; sizes are bytes.
Json ToJson(absl::Time time);
Json ToJson(const ModelInfo& model);
Json ToJson(const JobInfo& job);
Json ToJson(const DaemonInfo& info);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_JSON_H_
