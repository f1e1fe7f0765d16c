#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

absl::Status Run(const Cli& cli, const CommandLine& line, const std::string& shell) {
  const char* before = shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "";
  cli.Print(absl::StrCat(before, line.BashCompletion()));
  return absl::OkStatus();
}

}  // namespace

void AddCompletion(Command& root, Cli& cli, const CommandLine& line) {
  auto shell = std::make_shared<std::string>("bash");
  const Command c =
      root.AddVerb("completion", "a script for the shell: source <(glyd completion bash)");
  c.Required("SHELL", shell.get(), "bash or zsh");
  c.Run([shell, &line, &cli]() -> absl::Status {
    if (*shell != "bash" && *shell != "zsh") return UsageError("SHELL is bash or zsh");
    return Run(cli, line, *shell);
  });
}

}  // namespace glyd::cli
