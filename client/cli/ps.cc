#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
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

constexpr size_t kHoldersShown = 4;

std::string State(const ModelInfo& m) {
  std::string s(ModelStateName(m.state));
  if (m.state == ModelState::kLoading && m.load_bytes_total > 0)
    absl::StrAppend(
        &s, " ", 100 * (m.load_bytes_done >> 10) / std::max<uint64_t>(m.load_bytes_total >> 10, 1),
        "%");
  return s;
}

std::string Holders(const ModelInfo& m) {
  std::string out;
  for (size_t i = 0; i < std::min(m.holders.size(), kHoldersShown); ++i)
    absl::StrAppend(&out, i == 0 ? "" : ", ", m.holders[i].pid, " ",
                    Printable(m.holders[i].command, 20));
  if (m.leases > kHoldersShown) absl::StrAppend(&out, " and ", m.leases - kHoldersShown, " more");
  return out;
}

absl::Status Run(const Cli& cli) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const std::vector<ModelInfo> models, client.List());
  if (cli.json) {
    Json all = Json::array();
    for (const ModelInfo& m : models) all.push_back(ToJson(m));
    cli.PrintJson(Json{{"models", all}});
    return absl::OkStatus();
  }
  using T = TextTable;
  TextTable table({{"NAME"},
                   {"STATE"},
                   {"SIZE", T::kRight},
                   {"LAYOUT"},
                   {"DEVICE"},
                   {"PIN"},
                   {"AGE", T::kRight},
                   {"IDLE", T::kRight},
                   {"LEASES", T::kRight},
                   {"HOLDERS"}});
  const absl::Time now = absl::Now();
  for (const ModelInfo& m : models)
    table.Add({Printable(m.name), State(m), HumanBytes(m.packed_bytes),
               m.layout.empty() ? "-" : Printable(m.layout), Printable(m.device),
               m.pinned ? "yes" : "-", HumanAge(m.loaded_at, now),
               m.holders.empty() ? HumanAge(m.last_used_at, now) : "-", absl::StrCat(m.leases),
               Holders(m)});
  std::string text = table.Text();
  for (const ModelInfo& m : models)
    if (!m.error.empty()) absl::StrAppend(&text, Printable(m.name), ": ", OneLine(m.error), "\n");
  cli.Print(text);
  return absl::OkStatus();
}

}  // namespace

void AddPs(Command& root, Cli& cli) {
  const Command c = root.AddVerb("ps", "the models, their size, leases and holders");
  c.Run([&cli] { return Run(cli); });
}

}  // namespace glyd::cli
