#include "packer/pack/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "packer/internal/extras.h"
#include "packer/internal/no_memory.h"
#include "packer/model/config.h"
#include "packer/model/manifest.h"
#include "packer/model/plan.h"
#include "packer/pack/model_packer.h"
#include "packer/pack/staging.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/safetensors/tensor_reader.h"
#include "packer/safetensors/writer.h"

namespace glyd {
namespace {

absl::StatusOr<Checkpoint> OpenCheckpoint(const Dir& source, const PackOptions& options) {
  if (options.file.empty()) return Checkpoint::Open(source);
  if (!options.any)
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(options.file, 4096), ": a single file packs with --any alone"));
  return Checkpoint::OpenFile(source, options.file);
}

absl::StatusOr<SavePlan> MakePlan(const Dir& source, const Checkpoint& checkpoint,
                                  const PackOptions& options) {
  if (options.any) return PlanAny(checkpoint);
  GLYD_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Read(source));
  return PlanFamily(config, checkpoint, options.merge);
}

absl::StatusOr<bool> AreEqual(const Checkpoint& checkpoint, const StoredTensor& a,
                              const StoredTensor& b, const Progress& progress) {
  if (a.bytes != b.bytes) return false;
  constexpr uint64_t kPiece = 1 << 20;
  std::string of_a(std::min(a.bytes, kPiece), '\0'), of_b = of_a;
  const TensorReader reader(checkpoint.files());
  for (uint64_t at = 0; at < a.bytes; at += kPiece) {
    if (progress.cancelled()) return absl::CancelledError("cancelled");
    const uint64_t n = std::min(kPiece, a.bytes - at);
    GLYD_RETURN_IF_ERROR(reader.Read(a, at, n, of_a.data()));
    GLYD_RETURN_IF_ERROR(reader.Read(b, at, n, of_b.data()));
    if (std::memcmp(of_a.data(), of_b.data(), n) != 0) return false;
  }
  return true;
}

PackSummary Summarize(const SavePlan& plan, const ModelPacker& packer) {
  PackSummary s;
  for (const PlanItem& item : plan.items) {
    s.packs += item.packed();
    s.packed_weights += item.rows * item.cols;
    (item.packed() ? s.packed_tensors : s.raw_tensors) += item.members.size();
    for (const PlanMember& m : item.members) {
      s.source_bytes += m.source->bytes;
      if (!item.packed()) s.raw_bytes += m.source->bytes;
    }
  }
  s.saved_bytes = packer.file_bytes();
  for (const StoredTensor& t : packer.tensors()) s.pack_bytes += t.bytes;
  s.pack_bytes -= s.raw_bytes;
  return s;
}

// Of the save's files at least: what is known before any matrix is read.
uint64_t LeastBytes(const SavePlan& plan, Layout layout) {
  uint64_t n = 0;
  for (const PlanItem& item : plan.items)
    n += item.packed() ? DataBytes({.layout = layout, .rows = item.rows, .cols = item.cols})
                       : item.members[0].source->bytes;
  return n;
}

// Packs into the staging directory, and publishes it.
absl::StatusOr<PackSummary> Fill(const Dir& source, const std::vector<std::string>& extras,
                                 const SavePlan& plan, const Checkpoint& checkpoint,
                                 const PackOptions& options, Staging& staging, Progress& progress) {
  GLYD_RETURN_IF_ERROR(staging.CheckRoom(LeastBytes(plan, options.layout)));
  ModelPacker packer(plan, checkpoint, options.layout, options.threads, options.shard_bytes,
                     progress);
  GLYD_RETURN_IF_ERROR(packer.Measure());
  GLYD_RETURN_IF_ERROR(staging.CheckRoom(packer.file_bytes()));
  const auto write = [&]() -> absl::Status {
    GLYD_RETURN_IF_ERROR(packer.Write(staging));
    if (packer.files().size() > 1)
      GLYD_RETURN_IF_ERROR(
          staging.WriteFile(kIndexFile, IndexJson(packer.tensors(), packer.files())));
    GLYD_RETURN_IF_ERROR(CopyModelExtras(source, extras, staging));
    Manifest manifest;
    manifest.repo = options.repo;
    if (!options.revision.empty()) manifest.revision = options.revision;
    packer.FillManifest(&manifest);
    GLYD_RETURN_IF_ERROR(staging.WriteFile(kManifestFile, manifest.ToJson()));
    return staging.Publish();
  };
  GLYD_RETURN_IF_ERROR(staging.TellNeed(write(), packer.file_bytes()));
  return Summarize(plan, packer);
}

absl::StatusOr<PackSummary> Pack(const Dir& source, const Dir& out_parent,
                                 const std::string& out_name, const PackOptions& options,
                                 Progress& progress) {
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, source.List());
  if (options.file.empty() && absl::c_linear_search(names, kManifestFile))
    return absl::InvalidArgumentError(absl::StrCat(Printable(source.name(), 4096), ": has a ",
                                                   kManifestFile, ": it is packed already"));
  GLYD_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(source, options));
  GLYD_ASSIGN_OR_RETURN(const SavePlan plan, MakePlan(source, checkpoint, options));
  for (const std::string& note : checkpoint.notes()) progress.Note(note);
  for (const std::string& note : plan.notes) progress.Note(note);
  std::string warning;
  if (plan.dropped_head != nullptr) {
    GLYD_ASSIGN_OR_RETURN(const bool copy,
                          AreEqual(checkpoint, *plan.dropped_head, *plan.embedding, progress));
    if (copy)
      progress.Note(
          "lm_head.weight is left out: it is the embedding again, and config.json ties both");
    else
      warning =
          "lm_head.weight of the checkpoint is not saved, and unpack will not bring it back: "
          "config.json ties it to the embedding (tie_word_embeddings), though it differs; false "
          "there, or --any, keeps it";
  }

  // A single file may lie among anything: what is beside it need not be its own.
  std::vector<std::string> extras;
  if (options.file.empty()) {
    GLYD_ASSIGN_OR_RETURN(extras, ListModelExtras(source, progress));
  }
  Staging::Options output;
  output.force = options.force;
  output.replaceable = {kManifestFile};
  output.written = ReplacedFiles(out_parent, out_name, extras, {kManifestFile});
  output.source = &source;
  output.source_is_file = !options.file.empty();
  output.source_revision = options.revision;
  for (const TensorFile& f : checkpoint.files())
    output.source_files.emplace_back(f.opened.device, f.opened.inode);
  GLYD_ASSIGN_OR_RETURN(Staging staging, Staging::Create(out_parent, out_name, std::move(output)));
  GLYD_ASSIGN_OR_RETURN(PackSummary summary,
                        Fill(source, extras, plan, checkpoint, options, staging, progress));
  if (!warning.empty()) summary.warnings.push_back(warning);
  if (summary.saved_bytes > summary.source_bytes)
    summary.warnings.push_back(
        absl::StrCat("the save is larger than the tensors that it holds: ", summary.saved_bytes,
                     " of ", summary.source_bytes, " bytes"));
  return summary;
}

}  // namespace

absl::StatusOr<PackSummary> PackModel(const Dir& source, const Dir& out_parent,
                                      const std::string& out_name, const PackOptions& options,
                                      Progress& progress) {
  return WithoutBadAlloc([&] { return Printable(source.name(), 4096); }, 0,
                         [&] { return Pack(source, out_parent, out_name, options, progress); });
}

}  // namespace glyd
