#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/reasons.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

absl::Status Run(const Cli& cli, const std::string& wanted) {
  Json all = Json::array();
  std::string text;
  for (const ReasonRow& r : kReasons) {
    if (!wanted.empty() && absl::AsciiStrToUpper(wanted) != r.name) continue;
    all.push_back({{"reason", r.name}, {"code", r.code}, {"text", r.text}});
    absl::StrAppend(&text, r.name, " (", r.code, "): ", r.text, "\n");
  }
  if (all.empty())
    return absl::NotFoundError(
        absl::StrCat("no reason \"", Printable(wanted), "\": glyd explain lists all"));
  if (cli.json)
    cli.PrintJson({{"reasons", all}});
  else
    cli.Print(text);
  return absl::OkStatus();
}

}  // namespace

void AddExplain(Command& root, Cli& cli) {
  auto reason = std::make_shared<std::string>();
  const Command c = root.AddVerb("explain", "what a failure's reason means, and what to do");
  c.Optional("REASON", reason.get(),
             "as -o json and programs have it: NO_ROOM; all of them where not given");
  c.Run([reason, &cli] { return Run(cli, *reason); });
}

}  // namespace glyd::cli
