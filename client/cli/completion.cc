#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/cli.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

// The long options of a verb and its own verbs.
std::vector<std::string> Words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands({})) words.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

// The words that may follow each verb; a path where none of them fits.
std::string BashScript(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* sub : app.get_subcommands({}))
    absl::StrAppend(&cases, "    ", sub->get_name(), ") words=\"", absl::StrJoin(Words(*sub), " "),
                    "\" ;;\n");
  return absl::StrCat(
      "_glyd() {\n"
      "  local verb= word words\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \" ",
      absl::StrJoin(app.get_subcommands({}), " ",
                    [](std::string* out, const CLI::App* sub) { out->append(sub->get_name()); }),
      " \" in *\" $word \"*) verb=$word; break ;; esac\n"
      "  done\n"
      "  case \"$verb\" in\n",
      cases, "    *) words=\"", absl::StrJoin(Words(app), " "),
      "\" ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -o default -F _glyd glyd\n");
}

absl::Status Run(const Cli& cli, const CLI::App& app, const std::string& shell) {
  // zsh runs bash's completions.
  const char* before = shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "";
  cli.Print(absl::StrCat(before, BashScript(app)));
  return absl::OkStatus();
}

}  // namespace

void AddCompletion(CLI::App& app, Cli& cli) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c =
      app.add_subcommand("completion", "a script for the shell: source <(glyd completion bash)");
  c->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  c->callback(
      [shell, &app, &cli] { cli.run = [shell, &app, &cli] { return Run(cli, app, *shell); }; });
}

}  // namespace glyd::cli
