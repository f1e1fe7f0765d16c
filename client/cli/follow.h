#ifndef GLYD_CLIENT_CLI_FOLLOW_H_
#define GLYD_CLIENT_CLI_FOLLOW_H_

#include "absl/status/status.h"
#include "client/cli/cli.h"
#include "glyd/client.h"

namespace glyd::cli {

// Submits a job and, unless `detach`, follows it to its end with a bar; prints the job. Failed
// where the job did. An interrupt ends the watching alone: a job outlives its submitter.
absl::Status SubmitAndFollow(const Cli& cli, const Client& client, const JobSpec& spec,
                             bool detach);
absl::Status FollowJob(const Cli& cli, const Client& client, const std::string& id);

// A job for people: one line, and its error or notes.
std::string JobText(const JobInfo& job);
// "pack models/a -> models/b", of what the user asked for.
std::string SpecText(const JobSpec& spec);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_FOLLOW_H_
