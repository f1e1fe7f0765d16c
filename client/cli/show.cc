#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "glyd/status.h"
#include "kernels/format/step.h"
#include "packer/model/save.h"

namespace glyd::cli {
namespace {

// A model's parts, from a save or from the daemon.
struct Parts {
  std::vector<PackInfo> packs;
  std::vector<TensorInfo> tensors;
  // Of a save on disk, pack by pack: weights of mma12 that its codes do not hold. None for mma,
  // where what is rare takes more bits.
  std::vector<std::optional<uint64_t>> exceptions;
};

double BitsAWeight(uint64_t bytes, uint64_t weights) {
  return weights == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

// Why a tensor is saved as it is; docs/format.md, "Which tensors are packed".
std::string WhyAsItIs(const TensorInfo& t) {
  if (t.dtype != "BF16") return "not bf16";
  if (t.shape.size() != 2) return t.shape.size() < 2 ? "no matrix" : "no single matrix";
  if (t.shape[0] == 0 || t.shape[0] % kStepRows != 0)
    return absl::StrCat("rows no multiple of ", kStepRows);
  if (t.shape[1] == 0 || t.shape[1] % kStepCols != 0)
    return absl::StrCat("columns no multiple of ", kStepCols);
  return absl::StrContains(t.name, "embed") ? "an embedding" : "no Linear's weight";
}

// The largest packs, most weights first.
std::string Largest(const Parts& parts) {
  constexpr size_t kShown = 3;
  std::vector<const PackInfo*> packs;
  for (const PackInfo& p : parts.packs) packs.push_back(&p);
  std::stable_sort(packs.begin(), packs.end(), [](const PackInfo* a, const PackInfo* b) {
    return a->rows * a->cols > b->rows * b->cols;
  });
  packs.resize(std::min(packs.size(), kShown));
  std::vector<std::string> texts;
  for (const PackInfo* p : packs)
    texts.push_back(absl::StrCat(Printable(p->name), " [", p->rows, ", ", p->cols, "]"));
  return absl::StrJoin(texts, ", ");
}

void AppendText(const Parts& parts, std::string* text) {
  using T = TextTable;
  TextTable packs({{"PACK"},
                   {"LAYOUT"},
                   {"ROWS", T::kRight},
                   {"COLS", T::kRight},
                   {"SIZE", T::kRight},
                   {"BITS", T::kRight},
                   {"EXCEPTIONS", T::kRight},
                   {"TENSORS"}});
  for (size_t i = 0; i < parts.packs.size(); ++i) {
    const PackInfo& p = parts.packs[i];
    const bool counted = i < parts.exceptions.size() && parts.exceptions[i].has_value();
    std::vector<std::string> names;
    for (const std::string& name : p.tensors) names.push_back(Printable(name));
    packs.Add({Printable(p.name), p.layout, absl::StrCat(p.rows), absl::StrCat(p.cols),
               HumanBytes(p.bytes), absl::StrFormat("%.2f", BitsAWeight(p.bytes, p.rows * p.cols)),
               counted ? absl::StrCat(*parts.exceptions[i]) : "-", absl::StrJoin(names, " ")});
  }
  TextTable tensors({{"TENSOR AS IT IS"}, {"DTYPE"}, {"SHAPE"}, {"SIZE", T::kRight}, {"WHY"}});
  for (const TensorInfo& t : parts.tensors)
    tensors.Add(
        {Printable(t.name), Printable(t.dtype), Shape(t.shape), HumanBytes(t.bytes), WhyAsItIs(t)});
  if (!parts.packs.empty()) absl::StrAppend(text, "\n", packs.Text());
  if (!parts.tensors.empty()) absl::StrAppend(text, "\n", tensors.Text());
}

void AddJson(const Parts& parts, Json* out) {
  Json packs = Json::array(), tensors = Json::array();
  for (size_t i = 0; i < parts.packs.size(); ++i) {
    const PackInfo& p = parts.packs[i];
    packs.push_back({{"name", p.name},
                     {"layout", p.layout},
                     {"shape", {p.rows, p.cols}},
                     {"bytes", p.bytes},
                     {"bits_per_weight", BitsAWeight(p.bytes, p.rows * p.cols)},
                     {"experts", p.experts},
                     {"tensors", p.tensors}});
    if (i < parts.exceptions.size())
      packs.back()["exceptions"] =
          parts.exceptions[i].has_value() ? Json(*parts.exceptions[i]) : Json(nullptr);
  }
  for (const TensorInfo& t : parts.tensors)
    tensors.push_back({{"name", t.name},
                       {"dtype", t.dtype},
                       {"shape", t.shape},
                       {"bytes", t.bytes},
                       {"why", WhyAsItIs(t)}});
  (*out)["packs"] = packs;
  (*out)["tensors"] = tensors;
}

absl::Status ShowModel(const Cli& cli, const std::string& name) {
  const auto connected = cli.Connect();
  if (Reason(connected.status()) == kReasonNoDaemon && !cli.server_given)
    return absl::NotFoundError(absl::StrCat("\"", Printable(name),
                                            "\": no save is there, and no daemon to know a model "
                                            "of that name: ",
                                            connected.status().message()));
  GLYD_RETURN_IF_ERROR(connected.status());
  const Client& client = *connected;
  GLYD_ASSIGN_OR_RETURN(const ModelContents contents, client.GetContents(name));
  const ModelInfo& m = contents.model;
  const Parts parts = {contents.packs, contents.tensors, {}};
  if (cli.json) {
    Json out = {{"model", ToJson(m)}};
    AddJson(parts, &out);
    cli.PrintJson(out);
    return absl::OkStatus();
  }
  std::string text =
      absl::StrCat(Printable(m.name), ": ", ModelStateName(m.state), ", ", m.format, " ", m.layout,
                   ", ", Plural(m.tensors, "tensor"), ", ", Plural(m.packs, "pack"), "\n  size    ",
                   HumanBytes(m.packed_bytes), " of ", HumanBytes(m.bf16_bytes), " in bf16, ",
                   HumanBytes(m.allocation_bytes), " of memory on ", Printable(m.device),
                   "\n  path    ", Printable(m.path), "\n  source  ", Printable(m.source_repo),
                   m.source_revision.empty() ? "" : "@", Printable(m.source_revision),
                   "\n  glyd.json sha256 ", m.manifest_sha256, "\n");
  if (!m.error.empty()) absl::StrAppend(&text, "  error   ", OneLine(m.error), "\n");
  for (const LeaseHolder& h : m.holders)
    absl::StrAppend(&text, "  lease   ", Printable(h.lease_id), " of ", h.pid, " ",
                    Printable(h.command), ", uid ", h.uid, "\n");
  AppendText(parts, &text);
  cli.Print(text);
  return absl::OkStatus();
}

absl::StatusOr<Parts> PartsOf(const Save& save) {
  Parts parts;
  for (const SavedPack& p : save.packs) {
    PackInfo& out = parts.packs.emplace_back();
    out.name = p.name;
    out.layout = std::string(LayoutName(p.meta.layout));
    out.rows = p.meta.rows;
    out.cols = p.meta.cols;
    out.bytes = p.data.bytes + p.side.bytes + p.base.bytes;
    out.experts = p.experts;
    for (const PackMember& m : p.members) out.tensors.push_back(m.name);
    std::optional<uint64_t>& exceptions = parts.exceptions.emplace_back();
    if (p.meta.layout != Layout::kMma12 || p.base.bytes < sizeof(int32_t)) continue;
    // The last of exc_base. Nothing else of the pack is read here: verify looks at its structure.
    const SaveFile& file = save.files[p.base.file];
    char last[4];
    GLYD_RETURN_IF_ERROR(PreadFull(file.opened.fd.get(), last, sizeof last,
                                   p.base.offset + p.base.bytes - sizeof last,
                                   Printable(file.name)));
    exceptions = LoadLe32(last);
  }
  for (const RawTensor& t : save.tensors)
    parts.tensors.push_back({t.tensor.name, t.tensor.dtype, t.tensor.shape, t.tensor.bytes});
  return parts;
}

absl::Status ShowSave(const Cli& cli, const std::string& path) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(path));
  GLYD_ASSIGN_OR_RETURN(const Save save, Save::Open(dir));
  GLYD_ASSIGN_OR_RETURN(const Parts parts, PartsOf(save));
  uint64_t pack_bytes = 0, weights = 0, raw_bytes = 0;
  for (const PackInfo& p : parts.packs) pack_bytes += p.bytes, weights += p.rows * p.cols;
  for (const TensorInfo& t : parts.tensors) raw_bytes += t.bytes;
  if (cli.json) {
    Json out = {{"path", path},
                {"format", save.format},
                {"version", save.version},
                {"layout", std::string(LayoutName(save.layout))},
                {"source_repo", save.source_repo},
                {"source_revision",
                 save.source_revision.empty() ? Json(nullptr) : Json(save.source_revision)},
                {"manifest_sha256", Hex(save.manifest_sha256)},
                {"files", save.files.size()},
                {"packed_bytes", save.packed_bytes},
                {"bf16_bytes", save.bf16_bytes},
                {"pack_bytes", pack_bytes},
                {"raw_bytes", raw_bytes},
                {"bits_per_weight", BitsAWeight(pack_bytes, weights)},
                {"notes", save.notes}};
    AddJson(parts, &out);
    cli.PrintJson(out);
    return absl::OkStatus();
  }
  std::string text = absl::StrFormat(
      "%s: %s %s, written by glyd %s\n  size    %s of %s in bf16, %s\n  packed  %s, %s, %.2f bits "
      "a weight\n"
      "  as is   %s, %s\n  source  %s%s%s\n",
      Printable(path), save.format, LayoutName(save.layout), Printable(save.version),
      HumanBytes(save.packed_bytes), HumanBytes(save.bf16_bytes), Plural(save.files.size(), "file"),
      Plural(parts.packs.size(), "pack"), HumanBytes(pack_bytes), BitsAWeight(pack_bytes, weights),
      Plural(parts.tensors.size(), "tensor"), HumanBytes(raw_bytes), Printable(save.source_repo),
      save.source_revision.empty() ? "" : "@", save.source_revision);
  if (!parts.packs.empty()) absl::StrAppend(&text, "  largest ", Largest(parts), "\n");
  for (const std::string& note : save.notes)
    absl::StrAppend(&text, "  note    ", Printable(note, 1000), "\n");
  AppendText(parts, &text);
  cli.Print(text);
  return absl::OkStatus();
}

// A path has a slash or, where no daemon is named, a glyd.json in it; anything else is a model's
// name.
bool IsPath(const Cli& cli, const std::string& what) {
  if (absl::StrContains(what, '/') || what == "." || what == "..") return true;
  struct stat st;
  return !cli.server_given && ::stat(absl::StrCat(what, "/glyd.json").c_str(), &st) == 0;
}

}  // namespace

void AddShow(Command& root, Cli& cli) {
  auto what = std::make_shared<std::string>();
  const Command c =
      root.AddVerb("show", "the packs and tensors of a loaded model, or of a save on disk");
  c.Required("WHAT", what.get(), "a model's name, or a save's path (./PATH where in doubt)");
  c.Run([what, &cli] { return IsPath(cli, *what) ? ShowSave(cli, *what) : ShowModel(cli, *what); });
}

}  // namespace glyd::cli
