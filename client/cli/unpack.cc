#include "packer/unpack/unpack.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/interrupt.h"
#include "client/cli/local.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string path, out;
  bool force = false;
  int threads = 0;
};

absl::Status Run(const Cli& cli, const Flags& f) {
  const absl::Time start = absl::Now();
  absl::StatusOr<UnpackSummary> summary;
  {
    const CancelOnSignal tidy;
    Bar bar(cli.quiet);
    GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(f.path));
    GLYD_ASSIGN_OR_RETURN(const Save save, Save::Open(dir));
    GLYD_ASSIGN_OR_RETURN(const OutputPlace out, OpenOutput(f.out));
    summary = UnpackSave(save, dir, out.parent, out.name, f.force, f.threads, bar);
  }
  GLYD_RETURN_IF_ERROR(summary.status());
  const absl::Duration took = absl::Now() - start;
  if (cli.json) {
    cli.PrintJson(Json{{"save", f.path},
                       {"output", f.out},
                       {"tensors", summary->tensors},
                       {"bytes", summary->bytes},
                       {"files", summary->files},
                       {"seconds", absl::ToDoubleSeconds(took)}});
  } else {
    cli.Print(absl::StrCat("unpacked ", Printable(f.path), " into ", Printable(f.out), ": ",
                           Plural(summary->tensors, "tensor"), ", ", HumanBytes(summary->bytes),
                           " in ", Plural(summary->files, "file"), ", ",
                           HumanSeconds(absl::ToDoubleSeconds(took)), ", ",
                           HumanRate(summary->bytes, took), "\n"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddUnpack(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c =
      root.AddVerb("unpack", "write the bf16 checkpoint that a save was packed from, bit for bit");
  c.Required("PATH", &f->path, "the save");
  c.Required("OUT", &f->out, "the directory to make");
  c.Flag("--force", &f->force, "replace OUT where it is there");
  c.Number("--threads", &f->threads, 0, 1024, "threads; 0: one a core");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
