#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

absl::Status Run(const Cli& cli, const std::string& name, bool pinned) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_RETURN_IF_ERROR(client.Pin(name, pinned));
  if (cli.json) {
    cli.PrintJson(Json{{"name", name}, {"pinned", pinned}});
  } else {
    cli.Print(absl::StrCat(Printable(name), pinned ? ": pinned\n" : ": not pinned\n"));
  }
  return absl::OkStatus();
}

void Add(Command& root, Cli& cli, const char* verb, const char* help, bool pinned) {
  auto name = std::make_shared<std::string>();
  const Command c = root.AddVerb(verb, help);
  c.Required("NAME", name.get(), "the model");
  c.Run([name, pinned, &cli] { return Run(cli, *name, pinned); });
}

}  // namespace

void AddPin(Command& root, Cli& cli) {
  Add(root, cli, "pin", "keep a model: it is never evicted to make room", true);
  Add(root, cli, "unpin", "let a model be evicted again", false);
}

}  // namespace glyd::cli
