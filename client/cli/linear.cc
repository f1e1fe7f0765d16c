#include "glyd/linear.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/cpus.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

// What a product may be off from the decoded matrix in fp64, norm by norm: docs/design.md,
// "Products".
constexpr double kMaxError = 6e-3;
constexpr uint64_t kDecodedRows = 64;

struct Flags {
  std::string name, pack, via = "both";
  uint64_t m = 1;
  bool check = false, bias = false;
  int threads = 0;
};

struct Side {
  std::string via;
  std::vector<uint16_t> y;
  absl::Duration took;                        // as this process sees it
  std::optional<absl::Duration> device_time;  // the product itself, as the daemon measured it
};

struct Check {
  double relative = 0, largest = 0;
  uint64_t beyond = 0;  // elements that fp32 cannot hold: compared in kind alone
};

float ToFloat(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// The same on every machine: multiples of 1/128 in [-1, 1), all of them bf16.
std::vector<uint16_t> Activations(uint64_t n) {
  std::vector<uint16_t> x(n);
  uint64_t state = 0x9E3779B97F4A7C15;
  for (uint16_t& v : x) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const float f = (static_cast<float>(state >> 56) - 128.0f) / 128.0f;
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    v = static_cast<uint16_t>(bits >> 16);
  }
  return x;
}

// Arenas are asked in whole pieces: y begins on a boundary that every kernel takes.
constexpr uint64_t kPlaceAlign = 256;

absl::StatusOr<Side> ByDaemon(const Client& client, const Model& model, const ModelPack& pack,
                              const Flags& f, const std::vector<uint16_t>& x) {
  Side side{"daemon", std::vector<uint16_t>(f.m * pack.rows), {}, {}};
  const uint64_t y_at = AlignUp(x.size() * 2, kPlaceAlign);
  GLYD_ASSIGN_OR_RETURN(const Arena arena,
                        client.CreateArena(y_at + side.y.size() * 2, model.info().device));
  std::memcpy(arena.data(), x.data(), x.size() * 2);
  const absl::Time start = absl::Now();
  GLYD_ASSIGN_OR_RETURN(const DaemonProduct product,
                        LinearByDaemon(model, pack.name, f.m, {&arena, 0}, {&arena, y_at}, f.bias));
  side.took = absl::Now() - start;
  side.device_time = product.device_time;
  std::memcpy(side.y.data(), arena.data() + y_at, side.y.size() * 2);
  return side;
}

absl::StatusOr<Side> InProcess(const ModelPack& pack, const Flags& f,
                               const std::vector<uint16_t>& x, const std::vector<uint16_t>& bias) {
  Side side{"process", std::vector<uint16_t>(f.m * pack.rows), {}, {}};
  const int threads = f.threads > 0 ? f.threads : AvailableCpus();
  // The first use of a pack checks its bytes: that is not the product's time.
  std::vector<uint16_t> rows(kDecodedRows * pack.cols);
  GLYD_RETURN_IF_ERROR(DecodeRows(pack, 0, kDecodedRows, absl::MakeSpan(rows)));
  const absl::Time start = absl::Now();
  GLYD_RETURN_IF_ERROR(LinearInProcess(pack, x, f.m, bias, absl::MakeSpan(side.y), threads));
  side.took = absl::Now() - start;
  return side;
}

// Where W holds infinities and NaN, or numbers near the end of the range, fp64 and fp32 part: an
// element whose fp64 sum is not finite must not be in y either, and one whose terms pass what fp32
// adds up says nothing.
constexpr double kFp32Sums = 0x1p126;

// y against the product of the decoded matrix in fp64: |y - ref| / |ref| in the Euclidean norm, and
// the largest difference against the largest element.
absl::StatusOr<Check> CheckProduct(const ModelPack& pack, const Flags& f,
                                   const std::vector<uint16_t>& x,
                                   const std::vector<uint16_t>& bias,
                                   const std::vector<uint16_t>& y) {
  std::vector<double> xd(x.size());
  for (size_t i = 0; i < x.size(); ++i) xd[i] = ToFloat(x[i]);
  std::vector<uint16_t> rows(kDecodedRows * pack.cols);
  std::vector<double> w(pack.cols);
  uint64_t beyond = 0;
  double difference = 0, norm = 0, largest_difference = 0, largest = 0;
  for (uint64_t row0 = 0; row0 < pack.rows; row0 += kDecodedRows) {
    GLYD_RETURN_IF_ERROR(DecodeRows(pack, row0, kDecodedRows, absl::MakeSpan(rows)));
    for (uint64_t r = 0; r < kDecodedRows; ++r) {
      for (uint64_t k = 0; k < pack.cols; ++k) w[k] = ToFloat(rows[r * pack.cols + k]);
      for (uint64_t i = 0; i < f.m; ++i) {
        double sum = bias.empty() ? 0 : ToFloat(bias[row0 + r]);
        double terms = std::fabs(sum);
        for (uint64_t k = 0; k < pack.cols; ++k) {
          const double term = xd[i * pack.cols + k] * w[k];
          sum += term;
          terms += std::fabs(term);
        }
        const float got = ToFloat(y[i * pack.rows + row0 + r]);
        if (!(terms < kFp32Sums)) {
          ++beyond;
          if (!std::isfinite(sum) && std::isfinite(got))
            return absl::DataLossError(absl::StrCat("y[", i, ", ", row0 + r, "] is ", got,
                                                    ", and no finite number is right"));
          continue;
        }
        const double d = got - sum;
        difference += d * d;
        norm += sum * sum;
        largest_difference = std::fmax(largest_difference, std::fabs(d));
        largest = std::fmax(largest, std::fabs(sum));
      }
    }
  }
  if (norm == 0) return Check{std::sqrt(difference), largest_difference, beyond};
  return Check{std::sqrt(difference / norm), largest_difference / largest, beyond};
}

std::string Digest(const Side& s) { return Sha256Hex(s.y.data(), s.y.size() * 2); }

void Report(const Cli& cli, const Flags& f, const ModelPack& pack, const std::vector<Side>& sides,
            bool same, const std::optional<Check>& check) {
  if (cli.json) {
    Json json_sides = Json::array();
    for (const Side& s : sides)
      json_sides.push_back(
          {{"via", s.via},
           {"sha256", Digest(s)},
           {"seconds", absl::ToDoubleSeconds(s.took)},
           {"device_seconds",
            s.device_time ? Json(absl::ToDoubleSeconds(*s.device_time)) : Json(nullptr)}});
    Json out = {
        {"model", f.name}, {"pack", pack.name}, {"rows", pack.rows},   {"cols", pack.cols},
        {"m", f.m},        {"bias", f.bias},    {"sides", json_sides}, {"same_bits", nullptr}};
    if (sides.size() > 1) out["same_bits"] = same;
    out["relative_error"] = check ? Json(check->relative) : Json(nullptr);
    out["elements_beyond_fp32"] = check ? Json(check->beyond) : Json(nullptr);
    out["largest_error"] = check ? Json(check->largest) : Json(nullptr);
    if (check) out["limit"] = kMaxError;
    cli.PrintJson(out);
    return;
  }
  std::string text =
      absl::StrFormat("%s [%d, %d], M = %d\n", Printable(pack.name), pack.rows, pack.cols, f.m);
  for (const Side& s : sides) {
    absl::StrAppendFormat(&text, "  %-8s %s  %s", s.via, Digest(s),
                          HumanSeconds(absl::ToDoubleSeconds(s.took)));
    if (s.device_time)
      absl::StrAppendFormat(&text, ", the product %s",
                            HumanSeconds(absl::ToDoubleSeconds(*s.device_time)));
    text += '\n';
  }
  if (sides.size() > 1) absl::StrAppend(&text, same ? "  the same bits\n" : "  OTHER BITS\n");
  if (check)
    absl::StrAppendFormat(
        &text,
        "  error against fp64: %.2e of its norm (at most %.0e), the largest %.2e of the "
        "largest element\n",
        check->relative, kMaxError, check->largest);
  if (check && check->beyond > 0)
    absl::StrAppend(&text, "  ", Plural(check->beyond, "element"),
                    " of y past what fp32 holds, compared in kind alone\n");
  cli.Print(text);
}

absl::Status Run(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const Model model, client.Attach(f.name));
  const ModelPack* pack = model.FindPack(f.pack);
  if (pack == nullptr)
    return absl::NotFoundError(absl::StrCat("model \"", Printable(f.name), "\" has no pack \"",
                                            Printable(f.pack), "\" (glyd show ", Printable(f.name),
                                            " lists them)"));
  std::vector<uint16_t> bias;
  if (f.bias) {
    GLYD_ASSIGN_OR_RETURN(bias, model.Bias(*pack));
  }
  const std::vector<uint16_t> x = Activations(f.m * pack->cols);
  std::vector<Side> sides;
  if (f.via != "process") {
    GLYD_ASSIGN_OR_RETURN(Side side, ByDaemon(client, model, *pack, f, x));
    sides.push_back(std::move(side));
  }
  if (f.via != "daemon") {
    GLYD_ASSIGN_OR_RETURN(Side side, InProcess(*pack, f, x, bias));
    sides.push_back(std::move(side));
  }
  const bool same = sides.front().y == sides.back().y;
  std::optional<Check> check;
  if (f.check) {
    GLYD_ASSIGN_OR_RETURN(check, CheckProduct(*pack, f, x, bias, sides.front().y));
  }
  Report(cli, f, *pack, sides, same, check);
  if (!same) return absl::DataLossError("the daemon and this process have other bits");
  if (check && !(check->relative <= kMaxError))
    return absl::DataLossError(absl::StrFormat(
        "an error of %.2e against fp64, at most %.0e is right", check->relative, kMaxError));
  return absl::OkStatus();
}

}  // namespace

void AddLinear(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c = root.AddVerb("linear", "one product with a pack, on made-up activations");
  c.Required("NAME", &f->name, "the model");
  c.Required("PACK", &f->pack, "the pack");
  c.Number("--m", &f->m, 1, 65536, "rows of x");
  c.Choice("--via", &f->via, {"daemon", "process", "both"}, "where it is computed");
  c.Flag("--bias", &f->bias, "add the save's biases");
  c.Flag("--check", &f->check, "compare with the product in fp64");
  c.Number("--threads", &f->threads, 0, 1024, "threads in this process; 0: one a core");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
