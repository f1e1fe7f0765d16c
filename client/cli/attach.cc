#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/interrupt.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string name;
  bool hold = false;
  double seconds = 0;
};

// Until the end of stdin (with --hold), the time (with --seconds) or a signal, whichever is first.
void Wait(const Flags& f) {
  const absl::Time until =
      f.seconds > 0 ? absl::Now() + absl::Seconds(f.seconds) : absl::InfiniteFuture();
  while (NotedSignal() == 0 && absl::Now() < until) {
    // A signal that comes just before poll sleeps is seen a moment later.
    const int64_t ms =
        absl::ToInt64Milliseconds(std::min(until - absl::Now(), absl::Milliseconds(200)));
    pollfd in = {f.hold ? STDIN_FILENO : -1, POLLIN, 0};
    if (::poll(&in, 1, static_cast<int>(std::max<int64_t>(ms, 1))) <= 0) continue;
    char buffer[256];
    if (::read(STDIN_FILENO, buffer, sizeof buffer) <= 0) return;
  }
}

absl::Status Run(const Cli& cli, const Flags& f) {
  const CancelOnSignal tidy;
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const Model model, client.Attach(f.name));
  if (cli.json) {
    cli.PrintJson(Json{{"model", f.name},
                       {"lease_id", model.lease_id()},
                       {"memory_inode", model.memory_inode()},
                       {"memory_bytes", model.memory_bytes()},
                       {"pid", ::getpid()}});
  } else {
    cli.Print(absl::StrCat(Printable(f.name), ": mapped ", HumanBytes(model.memory_bytes()),
                           ", lease ", Printable(model.lease_id()), ", inode ",
                           model.memory_inode(), ", pid ", ::getpid(), "\n"));
  }
  if (f.hold || f.seconds > 0) Wait(f);
  return NotedSignal() == 0 ? absl::OkStatus() : absl::CancelledError("interrupted");
}

}  // namespace

void AddAttach(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c =
      root.AddVerb("attach", "map a model and, with --hold or --seconds, keep its lease");
  c.Required("NAME", &f->name, "the model");
  c.Flag("--hold", &f->hold, "until the end of its input, or a signal");
  c.Number("--seconds", &f->seconds, 0.0, 1e9, "for so long at most");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
