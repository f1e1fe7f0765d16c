#include "packer/verify/verify.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/dir.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/follow.h"
#include "client/cli/interrupt.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  bool resident = false, quick = false, job = false, detach = false;
  int threads = 0;
};

struct Verdict {
  std::string path;
  VerifyReport report;
  absl::Status status;
  absl::Duration took;
  bool judged = false;  // else it says nothing about the save
};

Verdict VerifyPath(const std::string& path, const VerifyOptions& options, Bar& bar) {
  Verdict v;
  v.path = path;
  const absl::Time start = absl::Now();
  v.status = [&]() -> absl::Status {
    GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(path));
    v.judged = true;
    return VerifyDir(dir, options, bar, &v.report);
  }();
  // What says something of this process or this machine says nothing of the save.
  if (absl::IsPermissionDenied(v.status) || absl::IsResourceExhausted(v.status)) v.judged = false;
  v.took = absl::Now() - start;
  return v;
}

const char* Word(const TensorVerdict& t) {
  if (t.checked == Checked::kNothing) return "not checked";
  if (!t.status.ok()) return "bad";
  return t.checked == Checked::kHashed ? "ok" : "structure ok, not hashed";
}

Json ToJson(const Verdict& v) {
  Json tensors = Json::array();
  for (const TensorVerdict& t : v.report.verdicts)
    tensors.push_back(
        {{"name", t.name},
         {"file", t.file},
         {"ok", t.status.ok()},
         {"verdict", Word(t)},
         {"error", t.status.ok() ? Json(nullptr) : Json(std::string(t.status.message()))}});
  return {{"path", v.path},
          {"ok", v.status.ok()},
          {"error", v.status.ok() ? Json(nullptr) : Json(std::string(v.status.message()))},
          {"format", v.report.format},
          {"layout", v.report.layout},
          {"packs", v.report.packs},
          {"tensors", v.report.tensors},
          {"bytes", v.report.bytes},
          {"seconds", absl::ToDoubleSeconds(v.took)},
          {"notes", v.report.notes},
          {"verdicts", tensors}};
}

std::string ToText(const Verdict& v, bool quick) {
  if (v.status.ok())
    return absl::StrCat(Printable(v.path), ": ok, ", v.report.format, " ", v.report.layout, ", ",
                        Plural(v.report.tensors, "tensor"), " in ", Plural(v.report.packs, "pack"),
                        quick ? ", structure alone"
                              : absl::StrCat(", ", HumanBytes(v.report.bytes), ", ",
                                             HumanRate(v.report.bytes, v.took)),
                        "\n");
  if (!v.judged)
    return absl::StrCat(Printable(v.path), ": could not be verified\n  ", v.status.message(), "\n");
  std::string text = absl::StrCat(Printable(v.path), ": BAD\n");
  size_t bad = 0;
  for (const TensorVerdict& t : v.report.verdicts) {
    if (t.status.ok() || t.checked == Checked::kNothing) continue;
    ++bad;
    absl::StrAppend(&text, "  ", Printable(t.name),
                    t.file.empty() ? "" : absl::StrCat(" in ", Printable(t.file)), ": ",
                    t.status.message(), "\n");
  }
  // What is wrong with the whole of it is no tensor's.
  if (bad == 0) absl::StrAppend(&text, "  ", v.status.message(), "\n");
  return text;
}

absl::Status RunHere(const Cli& cli, const Flags& f) {
  std::vector<Verdict> verdicts;
  absl::Status first;
  {
    const CancelOnSignal tidy;
    Bar bar(cli.quiet);
    for (const std::string& path : f.paths) {
      verdicts.push_back(VerifyPath(path, {f.quick, f.threads}, bar));
      if (absl::IsCancelled(verdicts.back().status)) return verdicts.back().status;
      for (const std::string& note : verdicts.back().report.notes) bar.Note(note);
    }
  }
  Json saves = Json::array();
  size_t bad = 0;
  for (const Verdict& v : verdicts) {
    saves.push_back(ToJson(v));
    if (!cli.json) cli.Print(ToText(v, f.quick));
    if (v.status.ok()) continue;
    ++bad;
    if (first.ok()) first = v.status;
  }
  if (cli.json) cli.PrintJson(Json{{"ok", bad == 0}, {"saves", saves}});
  if (bad > 1)
    return absl::DataLossError(
        absl::StrCat(first.message(), " (the first of ", bad, " bad saves)"));
  return first;
}

absl::Status RunResident(const Cli& cli, const std::string& name) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  const absl::Time start = absl::Now();
  uint64_t bytes = 0;
  absl::StatusOr<std::vector<std::string>> bad;
  {
    Bar bar(cli.quiet);
    bad = client.VerifyResident(name, [&](uint64_t done, uint64_t total) {
      bytes = total;
      const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
      bar.Set(
          {"verify", name, done, total, seconds > 0.2 ? static_cast<double>(done) / seconds : 0});
      return true;
    });
  }
  GLYD_RETURN_IF_ERROR(bad.status());
  const absl::Duration took = absl::Now() - start;
  if (cli.json) {
    cli.PrintJson(Json{{"model", name},
                       {"ok", bad->empty()},
                       {"bad_tensors", *bad},
                       {"bytes", bytes},
                       {"seconds", absl::ToDoubleSeconds(took)}});
  } else if (bad->empty()) {
    cli.Print(absl::StrCat(Printable(name), ": ok in memory, ", HumanBytes(bytes), ", ",
                           HumanRate(bytes, took), "\n"));
  } else {
    std::string text = absl::StrCat(Printable(name), ": BAD in memory\n");
    for (const std::string& t : *bad) absl::StrAppend(&text, "  ", Printable(t), "\n");
    cli.Print(text);
  }
  if (bad->empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("model \"", Printable(name), "\": ", Plural(bad->size(), "tensor"),
                   " in memory with another sha256, the first \"", Printable(bad->front()), "\""));
}

absl::Status RunAsJob(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  return SubmitAndFollow(cli, client, VerifyJob{f.paths[0], f.quick}, f.detach);
}

absl::Status Run(const Cli& cli, const Flags& f) {
  const bool job = f.job || f.detach || (cli.server_given && !f.resident);
  if ((f.resident || job) && f.paths.size() != 1)
    return UsageError(absl::StrCat(f.paths.size(), " given: --resident and a job take one"));
  if (f.resident && (f.job || f.detach || f.quick))
    return UsageError("--resident goes with neither --job, --detach nor --quick");
  if (f.resident) return RunResident(cli, f.paths[0]);
  return job ? RunAsJob(cli, f) : RunHere(cli, f);
}

}  // namespace

void AddVerify(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c =
      root.AddVerb("verify", "check every tensor of saves, or of a loaded model, by its sha256");
  c.List("PATH", &f->paths, true, "saves; ROOT/PATH for a job; a model's name with --resident");
  c.Flag("--resident", &f->resident, "the daemon's memory of the model of that name");
  c.Flag("--quick", &f->quick, "the structure alone: nothing is decoded or hashed");
  c.Number("--threads", &f->threads, 0, 1024, "threads; 0: one a core");
  c.Flag("--job", &f->job, "as a job of the daemon (so does --server)");
  c.Flag("--detach", &f->detach, "with a job: print its id and do not wait");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
