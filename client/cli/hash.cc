#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/cpus.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "client/cli/bar.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace glyd::cli {
namespace {

struct Flags {
  std::string name;
  std::vector<std::string> tensors;
  int threads = 0;
};

struct Hashed {
  absl::Status status;
  std::string sha256, expected;
};

Hashed HashTensor(const Model& model, const std::string& tensor, Bar& bar) {
  Hashed out;
  const absl::StatusOr<Digest> expected = model.TensorSha256(tensor);
  if (!expected.ok()) return {expected.status(), {}, {}};
  out.expected = Hex(*expected);
  Sha256 sha;
  bar.Item(tensor);
  out.status = model.ReadTensor(tensor, [&](absl::Span<const uint8_t> bytes) {
    sha.Update(bytes.data(), bytes.size());
    bar.Advance(bytes.size());
  });
  out.sha256 = sha.FinishHex();
  return out;
}

std::vector<Hashed> HashAll(const Model& model, const std::vector<std::string>& tensors,
                            int threads, Bar& bar) {
  std::vector<Hashed> out(tensors.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < tensors.size();)
      out[i] = HashTensor(model, tensors[i], bar);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& t : helpers) t.join();
  return out;
}

absl::Status Run(const Cli& cli, const Flags& f) {
  GLYD_ASSIGN_OR_RETURN(const Client client, cli.Connect());
  GLYD_ASSIGN_OR_RETURN(const Model model, client.Attach(f.name));
  const std::vector<std::string> tensors = f.tensors.empty() ? model.TensorNames() : f.tensors;
  std::vector<Hashed> hashed;
  {
    Bar bar(cli.quiet);
    bar.Phase("hash", f.tensors.empty() ? model.info().bf16_bytes : 0);
    const int threads = f.threads > 0 ? f.threads : AvailableCpus();
    hashed = HashAll(model, tensors, std::min<int>(threads, static_cast<int>(tensors.size())), bar);
  }
  std::string text;
  Json rows = Json::array();
  std::vector<std::string> bad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Hashed& h = hashed[i];
    GLYD_RETURN_IF_ERROR(h.status);
    if (h.sha256 != h.expected) bad.push_back(absl::StrCat("\"", Printable(tensors[i]), "\""));
    absl::StrAppend(&text, h.sha256, "  ", Printable(tensors[i]), "\n");
    rows.push_back({{"name", tensors[i]}, {"sha256", h.sha256}, {"ok", h.sha256 == h.expected}});
  }
  if (cli.json) {
    cli.PrintJson(Json{{"model", f.name}, {"ok", bad.empty()}, {"tensors", rows}});
  } else {
    cli.Print(text);
  }
  if (bad.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("model \"", Printable(f.name), "\": ", Plural(bad.size(), "tensor"),
                   " with another sha256 than the manifest names: ", absl::StrJoin(bad, ", ")));
}

}  // namespace

void AddHash(Command& root, Cli& cli) {
  auto f = std::make_shared<Flags>();
  const Command c = root.AddVerb(
      "hash", "attach, decode from the mapped memory, and compare each tensor's sha256");
  c.Required("NAME", &f->name, "the model");
  c.List("TENSOR", &f->tensors, false, "these tensors alone");
  c.Number("--threads", &f->threads, 0, 1024, "threads; 0: one a core");
  c.Run([f, &cli] { return Run(cli, *f); });
}

}  // namespace glyd::cli
