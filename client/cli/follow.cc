#include "client/cli/follow.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/json.h"
#include "client/cli/text.h"

namespace glyd::cli {
namespace {

absl::Status Outcome(const JobInfo& job) {
  if (job.state == JobState::kCancelled)
    return absl::CancelledError(absl::StrCat("job ", Printable(job.id), " was cancelled"));
  if (job.state != JobState::kFailed) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat("job ", Printable(job.id), " failed: ", OneLine(job.error)));
}

}  // namespace

std::string SpecText(const JobSpec& spec) {
  if (const auto* p = std::get_if<PackJob>(&spec))
    return absl::StrCat("pack ", Printable(p->source), " -> ", Printable(p->output));
  if (const auto* v = std::get_if<VerifyJob>(&spec))
    return absl::StrCat("verify ", Printable(v->path));
  const auto& l = std::get<LoadJob>(spec);
  return absl::StrCat("load ", Printable(l.path), " as ", Printable(l.name));
}

std::string JobText(const JobInfo& job) {
  std::string out =
      absl::StrCat(Printable(job.id), "  ", JobStateName(job.state), "  ", SpecText(job.spec));
  if (job.started_at != absl::InfinitePast()) {
    const absl::Time end = job.ended() ? job.ended_at : absl::Now();
    absl::StrAppend(&out, "  ", HumanSeconds(absl::ToDoubleSeconds(end - job.started_at)));
  }
  out += '\n';
  if (!job.error.empty()) absl::StrAppend(&out, "  error: ", OneLine(job.error), "\n");
  for (const std::string& note : job.notes)
    absl::StrAppend(&out, "  note: ", Printable(note, 1000), "\n");
  if (!job.result_json.empty()) {
    const Json result = Json::parse(job.result_json, nullptr, /*allow_exceptions=*/false);
    if (result.is_object())
      for (const auto& [key, value] : result.items())
        if (value.is_primitive())
          absl::StrAppend(&out, "  ", Printable(key), ": ",
                          value.is_string() ? Printable(value.get<std::string>()) : value.dump(),
                          "\n");
  }
  return out;
}

absl::Status FollowJob(const Cli& cli, const Client& client, const std::string& id) {
  absl::StatusOr<JobInfo> job;
  {
    Bar bar(cli.quiet);
    job = client.WatchJob(id, [&](const JobInfo& j) {
      const std::string phase =
          j.phase.empty() ? absl::AsciiStrToLower(JobStateName(j.state)) : j.phase;
      bar.Set({phase, j.item, j.bytes_done, j.bytes_total, j.bytes_per_second});
      return true;
    });
  }
  GLYD_RETURN_IF_ERROR(job.status());
  if (cli.json) {
    cli.PrintJson(ToJson(*job));
  } else {
    cli.Print(JobText(*job));
  }
  return Outcome(*job);
}

absl::Status SubmitAndFollow(const Cli& cli, const Client& client, const JobSpec& spec,
                             bool detach) {
  GLYD_ASSIGN_OR_RETURN(const JobInfo job, client.Submit(spec));
  if (!detach) {
    cli.Say(absl::StrCat("job ", Printable(job.id),
                         " (it goes on if this is interrupted; glyd jobs cancel ",
                         Printable(job.id), " ends it)"));
    return FollowJob(cli, client, job.id);
  }
  if (cli.json) {
    cli.PrintJson(ToJson(job));
  } else {
    cli.Print(absl::StrCat(job.id, "\n"));
  }
  return absl::OkStatus();
}

}  // namespace glyd::cli
