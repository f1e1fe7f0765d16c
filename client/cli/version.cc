#include "base/version.h"

#include "absl/strings/str_cat.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

// The writer whose bytes a pack here equals (docs/format.md).
constexpr const char* kFormatVersion = "0.25.0";

absl::Status Run(const Cli& cli) {
  if (cli.json) {
    cli.PrintJson(Json{{"version", kVersion}, {"format", kFormatVersion}});
  } else {
    cli.Print(absl::StrCat("glyd ", kVersion, " (packs as glyd ", kFormatVersion, ")\n"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddVersion(Command& root, Cli& cli) {
  root.AddVerb("version", "the version of this program, and of the format it writes").Run([&cli] {
    return Run(cli);
  });
}

}  // namespace glyd::cli
