#include <algorithm>
#include <cstring>
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
#include "glyd/linear.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string name, pack;
  int n = 200;
  uint64_t m = 1;
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

// A product with a pack in this process, by the daemon on an arena, and by the daemon with x and y
// in the messages; in turn. What the daemon's ones take longer is the call, and what the device's
// time leaves of them.
absl::Status RunLinear(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const Model model, client.Attach(f.name));
  const ModelPack* const pack = model.FindPack(f.pack);
  if (pack == nullptr)
    return absl::NotFoundError(
        absl::StrCat("model ", Printable(f.name), " has no pack \"", Printable(f.pack), "\""));
  GLYD_ASSIGN_OR_RETURN(const DaemonInfo daemon, client.Info());
  const int threads = std::max(1, static_cast<int>(daemon.linear_threads));
  std::vector<uint16_t> x(f.m * pack->cols, 0x3F80), y(f.m * pack->rows);
  const uint64_t y_at = AlignUp(2 * x.size(), 256);
  GLYD_ASSIGN_OR_RETURN(const Arena arena,
                        client.CreateArena(y_at + 2 * y.size(), model.info().device));
  std::memcpy(arena.data(), x.data(), 2 * x.size());
  // What a message may hold (linear.h).
  const bool inline_fits = std::max(2 * x.size(), 2 * y.size()) <= (1 << 20);
  Times here{"process", {}}, by_arena{"daemon, arena", {}}, by_message{"daemon, inline", {}};
  Times device{"its product alone", {}};
  constexpr int kWarmUp = 5;
  for (int i = -kWarmUp; i < f.n; ++i) {
    const absl::Time t0 = absl::Now();
    GLYD_RETURN_IF_ERROR(LinearInProcess(*pack, x, f.m, {}, absl::MakeSpan(y), threads));
    const absl::Time t1 = absl::Now();
    GLYD_ASSIGN_OR_RETURN(const DaemonProduct product,
                          LinearByDaemon(model, pack->name, f.m, {&arena, 0}, {&arena, y_at}));
    const absl::Time t2 = absl::Now();
    if (inline_fits)
      GLYD_RETURN_IF_ERROR(LinearByDaemon(model, pack->name, f.m, x, absl::MakeSpan(y)).status());
    const absl::Time t3 = absl::Now();
    if (i < 0) continue;
    here.seconds.push_back(absl::ToDoubleSeconds(t1 - t0));
    by_arena.seconds.push_back(absl::ToDoubleSeconds(t2 - t1));
    device.seconds.push_back(absl::ToDoubleSeconds(product.device_time));
    if (inline_fits) by_message.seconds.push_back(absl::ToDoubleSeconds(t3 - t2));
  }
  std::vector<Times*> rows = {&here, &by_arena, &device};
  if (inline_fits) rows.push_back(&by_message);
  for (Times* t : rows) std::sort(t->seconds.begin(), t->seconds.end());
  if (cli.json) {
    Json out{{"model", f.name},    {"pack", f.pack},        {"m", f.m},
             {"rows", pack->rows}, {"cols", pack->cols},    {"n", f.n},
             {"threads", threads}, {"times", Json::array()}};
    for (const Times* t : rows) out["times"].push_back(ToJson(*t));
    cli.PrintJson(out);
    return absl::OkStatus();
  }
  using T = TextTable;
  TextTable table({{absl::StrCat(Printable(f.pack), " [", pack->rows, ", ", pack->cols, "], M = ",
                                 f.m, ", ", Plural(static_cast<uint64_t>(threads), "thread"))},
                   {"P50", T::kRight},
                   {"P99", T::kRight},
                   {"OVER PROCESS", T::kRight}});
  for (const Times* t : rows)
    table.Add({t->what, absl::StrFormat("%.0f us", t->At(0.5) * 1e6),
               absl::StrFormat("%.0f us", t->At(0.99) * 1e6),
               absl::StrFormat("%+.0f us", (t->At(0.5) - here.At(0.5)) * 1e6)});
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
  auto g = std::make_shared<Flags>();
  const Command linear =
      bench.AddVerb("linear", "the time of a product, in this process and by the daemon");
  linear.Required("NAME", &g->name, "the model");
  linear.Required("PACK", &g->pack, "the pack, by the name that show tells");
  linear.Number("--m", &g->m, uint64_t{1}, uint64_t{65536}, "rows of x");
  linear.Number("--n", &g->n, 1, 1000000, "how often");
  linear.Run([g, &cli] { return RunLinear(cli, *g); });
}

}  // namespace glyd::cli
