#include "client/cli/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace glyd::cli {
namespace {

constexpr int kUsage = 2;

// The verbs and long options that may follow.
std::vector<std::string> Words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* verb : app.get_subcommands({})) words.push_back(verb->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

template <typename T>
void AddNumber(CLI::App* app, const char* names, T* value, T least, T most, const char* help) {
  app->add_option(names, *value, help)->check(CLI::Range(least, most))->capture_default_str();
}

}  // namespace

Command Command::AddVerb(const char* name, const char* help) const {
  return Command(app_->add_subcommand(name, help), chosen_);
}

void Command::NeedVerb() const { app_->require_subcommand(1); }

void Command::Required(const char* name, std::string* value, const char* help) const {
  app_->add_option(name, *value, help)->required();
}

void Command::Optional(const char* name, std::string* value, const char* help) const {
  app_->add_option(name, *value, help);
}

void Command::List(const char* name, std::vector<std::string>* values, bool required,
                   const char* help) const {
  app_->add_option(name, *values, help)->required(required);
}

void Command::Option(const char* names, std::string* value, const char* help) const {
  app_->add_option(names, *value, help);
}

void Command::Choice(const char* names, std::string* value, std::vector<std::string> of,
                     const char* help) const {
  app_->add_option(names, *value, help)->check(CLI::IsMember(std::move(of)))->capture_default_str();
}

void Command::Number(const char* names, int* value, int least, int most, const char* help) const {
  AddNumber(app_, names, value, least, most, help);
}

void Command::Number(const char* names, uint64_t* value, uint64_t least, uint64_t most,
                     const char* help) const {
  AddNumber(app_, names, value, least, most, help);
}

void Command::Number(const char* names, double* value, double least, double most,
                     const char* help) const {
  AddNumber(app_, names, value, least, most, help);
}

void Command::Flag(const char* names, bool* value, const char* help) const {
  app_->add_flag(names, *value, help);
}

void Command::Run(Action action) const {
  app_->callback([app = app_, chosen = chosen_, action = std::move(action)] {
    if (app->get_subcommands().empty()) *chosen = action;
  });
}

CommandLine::CommandLine(const char* name, const char* description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->require_subcommand(1);
  app_->fallthrough();  // verbs take it over: what is not theirs is the root's
}

CommandLine::~CommandLine() = default;

std::optional<int> CommandLine::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& e) {
    return app_->exit(e);
  } catch (const CLI::ParseError& e) {
    const std::string name = app_->get_name();
    std::fprintf(stderr, "%s: %s\n%s: try: %s --help, or %s VERB --help\n", name.c_str(), e.what(),
                 name.c_str(), name.c_str(), name.c_str());
    return kUsage;
  }
}

bool CommandLine::Given(const char* option) const { return app_->count(option) > 0; }

std::string CommandLine::BashCompletion() const {
  std::vector<std::string> verbs;
  std::string cases;
  for (const CLI::App* verb : app_->get_subcommands({})) {
    verbs.push_back(verb->get_name());
    absl::StrAppend(&cases, "    ", verb->get_name(), ") choices=\"",
                    absl::StrJoin(Words(*verb), " "), "\" ;;\n");
  }
  const std::string name = app_->get_name();
  return absl::StrCat(
      "_", name, "() {\n  local verb= word choices\n",
      "  for word in \"${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}\"; do\n", "    case \" ",
      absl::StrJoin(verbs, " "), " \" in *\" $word \"*) verb=$word; break ;; esac\n  done\n",
      "  case \"$verb\" in\n", cases, "    *) choices=\"", absl::StrJoin(Words(*app_), " "),
      "\" ;;\n  esac\n",
      "  COMPREPLY=($(compgen -W \"$choices\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n",
      "complete -o default -F _", name, " ", name, "\n");
}

}  // namespace glyd::cli
