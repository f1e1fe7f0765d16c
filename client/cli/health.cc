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

absl::Status Run(const Cli& cli, const std::string& service) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const bool serving, client.IsServing(service));
  if (cli.json) {
    cli.PrintJson(Json{{"service", service}, {"serving", serving}});
  } else {
    cli.Print(serving ? "SERVING\n" : "NOT_SERVING\n");
  }
  if (serving) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat(client.server(), " is not serving",
                                         service.empty() ? "" : " \"", Printable(service),
                                         service.empty() ? "" : "\""));
}

}  // namespace

void AddHealth(Command& root, Cli& cli) {
  auto service = std::make_shared<std::string>();
  const Command c = root.AddVerb("health", "SERVING (exit 0) or NOT_SERVING (exit 1)");
  c.Optional("SERVICE", service.get(),
             "liveness, readiness or a model's name; the daemon where not given");
  c.Run([service, &cli] { return Run(cli, *service); });
}

}  // namespace glyd::cli
