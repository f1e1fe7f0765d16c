#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

std::string Worker(const DeviceStatus& d) {
  if (d.worker_pid == 0) return absl::StrCat("down: ", Printable(d.error));
  return d.worker_restarts == 0
             ? absl::StrCat(d.worker_pid)
             : absl::StrCat(d.worker_pid, ", ", Plural(d.worker_restarts, "restart"));
}

absl::Status Run(const Cli& cli) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const DaemonInfo info, client.Info());
  if (cli.json) {
    cli.PrintJson(ToJson(info));
    return absl::OkStatus();
  }
  std::string text = absl::StrCat(
      "glydd ", Printable(info.version), " at ", Printable(client.server()), ", pid ", info.pid,
      ", up ", HumanAge(info.started_at, absl::Now()), info.draining ? ", draining" : "", "\n  ",
      Plural(info.sessions, "session"), ", ", Plural(info.leases, "lease"), ", ",
      Plural(info.linear_threads, "thread"), " for products\n\n");
  using T = TextTable;
  TextTable devices({{"DEVICE"},
                     {"MODEL"},
                     {"USED", T::kRight},
                     {"BUDGET", T::kRight},
                     {"TOTAL", T::kRight},
                     {"TRANSPORT"},
                     {"WORKER"},
                     {"TARGETS"}});
  for (const DeviceStatus& d : info.devices)
    devices.Add({Printable(d.name), Printable(d.model), HumanBytes(d.used_bytes),
                 HumanBytes(d.budget_bytes), HumanBytes(d.total_bytes),
                 std::string(MemoryTransportName(d.transport)), Worker(d),
                 Printable(absl::StrJoin(d.linear_targets, " "))});
  absl::StrAppend(&text, devices.Text());
  TextTable roots({{"ROOT"}, {"DIRECTORY"}, {"ACCESS"}});
  for (const RootInfo& r : info.roots)
    roots.Add({Printable(r.name), Printable(r.directory), r.writable ? "read, write" : "read"});
  if (!info.roots.empty()) absl::StrAppend(&text, "\n", roots.Text());
  cli.Print(text);
  return absl::OkStatus();
}

}  // namespace

void AddInfo(Command& root, Cli& cli) {
  root.AddVerb("info", "the daemon, its devices and its roots").Run([&cli] { return Run(cli); });
}

}  // namespace glyd::cli
