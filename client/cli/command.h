#ifndef GLYD_CLIENT_CLI_COMMAND_H_
#define GLYD_CLIENT_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace glyd::cli {

// What a verb does; it returns the command's outcome.
using Action = std::function<absl::Status()>;

// A verb as it is declared: its arguments, options and action. A view of what a CommandLine owns.
// CLI11 stays behind it, in command.cc: included by every verb it made their compilation four times
// as long.
//
// Values are written while the line is parsed, into objects that must live until the action has
// run; what they hold before is the default.
class Command {
 public:
  Command AddVerb(const char* name, const char* help) const;
  // One of the verbs must be given: without this, the verb itself can be run too.
  void NeedVerb() const;

  void Required(const char* name, std::string* value, const char* help) const;
  void Optional(const char* name, std::string* value, const char* help) const;
  void List(const char* name, std::vector<std::string>* values, bool required,
            const char* help) const;

  // "--name" or "-n,--name".
  void Option(const char* names, std::string* value, const char* help) const;
  void Choice(const char* names, std::string* value, std::vector<std::string> of,
              const char* help) const;
  void Number(const char* names, int* value, int least, int most, const char* help) const;
  void Number(const char* names, uint64_t* value, uint64_t least, uint64_t most,
              const char* help) const;
  void Number(const char* names, double* value, double least, double most, const char* help) const;
  void Flag(const char* names, bool* value, const char* help) const;

  void Run(Action action) const;

 private:
  friend class CommandLine;
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  CLI::App* app_;
  Action* chosen_;
};

// The whole command line. Global options may stand before or behind the verb.
class CommandLine {
 public:
  CommandLine(const char* name, const char* description);
  ~CommandLine();

  Command root() { return Command(app_.get(), &action_); }
  // An exit code where the program is to end now: 0 after --help, 2 for wrong usage, which stderr
  // then tells.
  std::optional<int> Parse(int argc, const char* const* argv);
  bool Given(const char* option) const;
  // Of the verb that was given.
  const Action& action() const { return action_; }

  // A script that completes verbs and options, for bash (and zsh, which runs bash's).
  std::string BashCompletion() const;

 private:
  std::unique_ptr<CLI::App> app_;
  Action action_;
};

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_COMMAND_H_
