#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/follow.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

void PrintJob(const Cli& cli, const JobInfo& job) {
  if (cli.json) {
    cli.PrintJson(ToJson(job));
  } else {
    cli.Print(JobText(job));
  }
}

std::string Done(const JobInfo& j) {
  if (j.ended() || j.bytes_total == 0) return "-";
  return absl::StrCat(static_cast<int>(100.0 * static_cast<double>(j.bytes_done) /
                                       static_cast<double>(j.bytes_total)),
                      "%");
}

absl::Status List(const Cli& cli) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const std::vector<JobInfo> jobs, client.ListJobs());
  if (cli.json) {
    Json all = Json::array();
    for (const JobInfo& j : jobs) all.push_back(ToJson(j));
    cli.PrintJson(Json{{"jobs", all}});
    return absl::OkStatus();
  }
  using T = TextTable;
  TextTable table({{"ID"}, {"STATE"}, {"DONE", T::kRight}, {"AGE", T::kRight}, {"JOB"}});
  const absl::Time now = absl::Now();
  for (const JobInfo& j : jobs)
    table.Add({Printable(j.id), std::string(JobStateName(j.state)), Done(j),
               HumanAge(j.created_at, now), SpecText(j.spec)});
  cli.Print(table.Text());
  return absl::OkStatus();
}

absl::Status Show(const Cli& cli, const std::string& id) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const JobInfo job, client.GetJob(id));
  PrintJob(cli, job);
  return absl::OkStatus();
}

absl::Status Watch(const Cli& cli, const std::string& id) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  return FollowJob(cli, client, id);
}

absl::Status Cancel(const Cli& cli, const std::string& id) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const JobInfo job, client.CancelJob(id));
  PrintJob(cli, job);
  if (!job.ended() || job.state == JobState::kCancelled) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("job ", Printable(job.id),
                                                    " has ended: ", JobStateName(job.state),
                                                    "; there is nothing to cancel"));
}

}  // namespace

void AddJobs(Command& root, Cli& cli) {
  const Command jobs = root.AddVerb("jobs", "the daemon's jobs");
  jobs.Run([&cli] { return List(cli); });
  jobs.AddVerb("ls", "all of them, newest first").Run([&cli] { return List(cli); });
  const auto with_id = [&](const char* verb, const char* help,
                           absl::Status (*run)(const Cli&, const std::string&)) {
    auto id = std::make_shared<std::string>();
    const Command c = jobs.AddVerb(verb, help);
    c.Required("ID", id.get(), "the job");
    c.Run([id, run, &cli] { return run(cli, *id); });
  };
  with_id("show", "one of them, with its result or error", Show);
  with_id("watch", "follow one to its end", Watch);
  with_id("cancel", "end one", Cancel);
}

}  // namespace glyd::cli
