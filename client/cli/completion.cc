#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

// For zsh both to be sourced and to be found in fpath as _glyd: there the file is the function's
// body, which the script's own takes the place of, and the first completion has still to be made.
constexpr char kZshBefore[] =
    "#compdef glyd\n"
    "autoload -U +X bashcompinit && bashcompinit\n";
constexpr char kZshAfter[] =
    "[[ ${funcstack[1]} != _glyd ]] || _bash_complete -o default -F _glyd\n";

absl::Status Run(const Cli& cli, const CommandLine& line, const std::string& shell) {
  const bool zsh = shell == "zsh";
  cli.Print(absl::StrCat(zsh ? kZshBefore : "", line.BashCompletion(), zsh ? kZshAfter : ""));
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
