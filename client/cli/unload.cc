#include <memory>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string name;
  bool drain = false;
};

absl::Status Run(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const bool draining, client.Unload(f.name, f.drain));
  if (cli.json) {
    cli.PrintJson(Json{{"name", f.name}, {"draining", draining}});
  } else {
    cli.Print(absl::StrCat(Printable(f.name),
                           draining ? ": draining, gone with its last lease\n" : ": unloaded\n"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddUnload(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c = root.AddVerb("unload", "free a model; refused while leases are out");
  c.Required("NAME", &f->name, "the model");
  c.Flag("--drain", &f->drain, "give no new lease, and free it with the last one");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
