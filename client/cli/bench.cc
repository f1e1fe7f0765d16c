#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string name;
  int n = 200;
};

struct Times {
  std::string what;
  std::vector<double> seconds;
  double At(double part) const {
    return seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))];
  }
};

Json ToJson(const Times& t) {
  return {{"what", t.what}, {"p50_seconds", t.At(0.5)}, {"p99_seconds", t.At(0.99)}};
}

// Attach, until every view is there; the release after it; and, as the floor that a round trip has,
// an empty call of the same daemon. In turn, so that all three meet the same machine.
absl::Status RunAttach(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  Times attach{"attach", {}}, release{"release", {}}, floor{"empty call", {}};
  uint64_t tensors = 0;
  constexpr int kWarmUp = 5;
  for (int i = -kWarmUp; i < f.n; ++i) {
    const absl::Time t0 = absl::Now();
    GLYD_ASSIGN_OR_RETURN(Model model, client.Attach(f.name));
    const absl::Time t1 = absl::Now();
    tensors = model.info().tensors;
    GLYD_RETURN_IF_ERROR(std::move(model).Release());
    const absl::Time t2 = absl::Now();
    GLYD_RETURN_IF_ERROR(client.Info().status());
    const absl::Time t3 = absl::Now();
    if (i < 0) continue;
    attach.seconds.push_back(absl::ToDoubleSeconds(t1 - t0));
    release.seconds.push_back(absl::ToDoubleSeconds(t2 - t1));
    floor.seconds.push_back(absl::ToDoubleSeconds(t3 - t2));
  }
  for (Times* t : {&attach, &release, &floor}) std::sort(t->seconds.begin(), t->seconds.end());
  if (cli.json) {
    cli.PrintJson(Json{{"model", f.name},
                       {"tensors", tensors},
                       {"n", f.n},
                       {"attach", ToJson(attach)},
                       {"release", ToJson(release)},
                       {"floor", ToJson(floor)},
                       {"ratio_p50", attach.At(0.5) / floor.At(0.5)}});
    return absl::OkStatus();
  }
  using T = TextTable;
  TextTable table({{absl::StrCat(Printable(f.name), ", ", Plural(tensors, "tensor"), ", ",
                                 Plural(f.n, "time"))},
                   {"P50", T::kRight},
                   {"P99", T::kRight},
                   {"RATIO", T::kRight}});
  for (const Times* t : {&attach, &release, &floor})
    table.Add({t->what, absl::StrFormat("%.0f us", t->At(0.5) * 1e6),
               absl::StrFormat("%.0f us", t->At(0.99) * 1e6),
               absl::StrFormat("%.2f", t->At(0.5) / floor.At(0.5))});
  cli.Print(table.Text());
  return absl::OkStatus();
}

}  // namespace

void AddBench(Command& root, Cli& cli) {
  const Command bench = root.AddVerb("bench", "measure a running daemon");
  bench.NeedVerb();
  auto f = std::make_shared<Flags>();
  const Command c =
      bench.AddVerb("attach", "the time to map a model, beside that of an empty call");
  c.Required("NAME", &f->name, "the model");
  c.Number("--n", &f->n, 1, 1000000, "how often");
  c.Run([f, &cli] { return RunAttach(cli, *f); });
}

}  // namespace glyd::cli
