#include "packer/pack/pack.h"

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/follow.h"
#include "client/cli/interrupt.h"
#include "client/cli/local.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string model, out, layout = "mma";
  bool no_merge = false, any = false, force = false, job = false, detach = false;
  int threads = 0;
};

double BitsAWeight(const PackSummary& s) {
  return s.packed_weights == 0
             ? 0
             : 8.0 * static_cast<double>(s.pack_bytes) / static_cast<double>(s.packed_weights);
}

void Report(const Cli& cli, const Flags& f, const PackSummary& s, absl::Duration took) {
  if (cli.json) {
    cli.PrintJson(Json{{"model", f.model},
                       {"output", f.out},
                       {"layout", f.layout},
                       {"packs", s.packs},
                       {"packed_tensors", s.packed_tensors},
                       {"raw_tensors", s.raw_tensors},
                       {"packed_weights", s.packed_weights},
                       {"source_bytes", s.source_bytes},
                       {"saved_bytes", s.saved_bytes},
                       {"pack_bytes", s.pack_bytes},
                       {"raw_bytes", s.raw_bytes},
                       {"warnings", s.warnings},
                       {"bits_per_weight", BitsAWeight(s)},
                       {"seconds", absl::ToDoubleSeconds(took)}});
    return;
  }
  const double share = s.source_bytes == 0 ? 0
                                           : 100.0 * static_cast<double>(s.saved_bytes) /
                                                 static_cast<double>(s.source_bytes);
  std::string text = absl::StrCat("packed ", Printable(f.model), " into ", Printable(f.out), " (",
                                  f.layout, ")\n");
  absl::StrAppendFormat(&text, "  size    %s of %s, %.1f%%\n", HumanBytes(s.saved_bytes),
                        HumanBytes(s.source_bytes), share);
  absl::StrAppendFormat(&text, "  packed  %s in %s, %s, %.2f bits a weight\n",
                        Plural(s.packed_tensors, "tensor"), Plural(s.packs, "pack"),
                        HumanBytes(s.pack_bytes), BitsAWeight(s));
  absl::StrAppendFormat(&text, "  as is   %s, %s\n", Plural(s.raw_tensors, "tensor"),
                        HumanBytes(s.raw_bytes));
  absl::StrAppendFormat(&text, "  time    %s, %s\n", HumanSeconds(absl::ToDoubleSeconds(took)),
                        HumanRate(s.source_bytes, took));
  cli.Print(text);
}

absl::Status RunHere(const Cli& cli, const Flags& f) {
  PackOptions options;
  GLYD_ASSIGN_OR_RETURN(options.layout, ParseLayout(f.layout));
  options.merge = !f.no_merge;
  options.any = f.any;
  options.force = f.force;
  options.threads = f.threads;
  options.repo = f.model;
  const absl::Time start = absl::Now();
  absl::StatusOr<PackSummary> summary;
  {
    const CancelOnSignal tidy;
    Bar bar(cli.quiet);
    GLYD_ASSIGN_OR_RETURN(const ModelSource source, FindModel(f.model));
    options.revision = source.revision;
    options.file = source.file;
    GLYD_ASSIGN_OR_RETURN(const OutputPlace out, OpenOutput(f.out));
    summary = PackModel(source.dir, out.parent, out.name, options, bar);
  }
  GLYD_RETURN_IF_ERROR(summary.status());
  for (const std::string& w : summary->warnings)
    std::fprintf(stderr, "glyd: warning: %s\n", Printable(w, 1000).c_str());
  Report(cli, f, *summary, absl::Now() - start);
  return absl::OkStatus();
}

absl::Status RunAsJob(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  return SubmitAndFollow(cli, client,
                         PackJob{f.model, f.out, f.layout, f.no_merge, f.any, f.force,
                                 static_cast<uint32_t>(f.threads)},
                         f.detach);
}

}  // namespace

void AddPack(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c = root.AddVerb("pack", "pack a bf16 checkpoint into a new directory");
  c.Required("MODEL", &f->model,
             "a directory, or a repo id in the local Hub cache; ROOT/PATH for a job");
  c.Required("OUT", &f->out, "the directory to make; ROOT/PATH for a job");
  c.Choice("--layout", &f->layout, {"mma", "mma12"},
           "mma (10.8 bits a weight) or mma12 (12.04, faster)");
  c.Flag("--no-merge", &f->no_merge,
         "each Linear for itself: q, k, v and gate, up are not stacked");
  c.Flag("--any", &f->any,
         "take any architecture: every matrix that fits is packed under its own name");
  c.Flag("--force", &f->force, "replace OUT where it is there");
  c.Number("--threads", &f->threads, 0, 1024, "threads; 0: one a core");
  c.Flag("--job", &f->job, "as a job of the daemon (so does --server)");
  c.Flag("--detach", &f->detach, "with a job: print its id and do not wait");
  c.Run([f, &cli] {
    return f->job || f->detach || cli.server_given ? RunAsJob(cli, *f) : RunHere(cli, *f);
  });
}

}  // namespace glyd::cli
