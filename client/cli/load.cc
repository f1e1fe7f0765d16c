#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  LoadOptions load;
  std::string transport = "default";
  bool wait = false;
};

absl::StatusOr<ModelInfo> Wait(const Cli& cli, const Client& client, const std::string& name) {
  Bar bar(cli.quiet);
  const absl::Time start = absl::Now();
  return client.WaitUntilLoaded(name, [&](const ModelInfo& m) {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    bar.Set({"load", m.name, m.load_bytes_done, m.load_bytes_total,
             seconds > 0.2 ? static_cast<double>(m.load_bytes_done) / seconds : 0});
    return true;
  });
}

absl::Status Run(const Cli& cli, Flags& f) {
  f.load.transport = f.transport == "fd"         ? MemoryTransport::kFd
                     : f.transport == "cuda-ipc" ? MemoryTransport::kCudaIpc
                                                 : MemoryTransport::kDefault;
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  const absl::Time start = absl::Now();
  GLYD_ASSIGN_OR_RETURN(ModelInfo model, client.Load(f.load));
  if (f.wait) {
    GLYD_ASSIGN_OR_RETURN(model, Wait(cli, client, f.load.name));
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (cli.json) {
    cli.PrintJson(ToJson(model));
    return absl::OkStatus();
  }
  std::string text = absl::StrCat(Printable(model.name), ": ", ModelStateName(model.state));
  if (model.state == ModelState::kReady)
    absl::StrAppend(&text, ", ", model.format, " ", model.layout, ", ",
                    HumanBytes(model.packed_bytes), " on ", Printable(model.device), ", ",
                    HumanSeconds(seconds));
  cli.Print(text + "\n");
  return absl::OkStatus();
}

}  // namespace

void AddLoad(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c = root.AddVerb("load", "load a save into the daemon's memory under a name");
  c.Required("NAME", &f->load.name, "letters, digits and . _ -, 128 at most, no dot in front");
  c.Required("PATH", &f->load.path, "the save, ROOT/PATH (glyd info lists the roots)");
  c.Option("--device", &f->load.device, "where; as glyd info names it");
  c.Flag("--pin", &f->load.pin, "never evict it to make room");
  c.Choice("--transport", &f->transport, {"default", "fd", "cuda-ipc"},
           "how clients get at its memory");
  c.Flag("--verify", &f->load.verify, "hash every tensor before it is READY");
  c.Choice("--layout", &f->load.layout, {"mma", "mma12"},
           "convert on the way in; as saved where not given");
  c.Flag("--wait", &f->wait, "until it is READY or has failed");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
