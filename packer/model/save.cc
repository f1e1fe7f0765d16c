#include "packer/model/save.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/looks_like.h"
#include "packer/internal/text.h"
#include "packer/model/config.h"
#include "packer/model/family_shapes.h"
#include "packer/model/plan.h"

namespace glyd {
namespace {

// Joins glyd.json with the tensors of the files: each is used once, all are used.
class Joiner {
 public:
  Joiner(const Checkpoint& files, absl::string_view shown) : files_(files), shown_(shown) {}

  absl::StatusOr<SavedPack> Pack(ManifestPack entry) {
    SavedPack p;
    static_cast<ManifestPack&>(p) = std::move(entry);
    const bool own_weight = p.members[0].name == p.name;
    const BufferNames names = PackBuffers(p.name, p.meta.layout, own_weight);
    const bool mma = p.meta.layout == Layout::kMma;
    const uint64_t steps = StepCount(p.meta);
    GLYD_ASSIGN_OR_RETURN(p.data, Buffer(names.data, "U8"));
    GLYD_ASSIGN_OR_RETURN(p.side, Buffer(names.side, mma ? "U8" : "I32"));
    GLYD_ASSIGN_OR_RETURN(p.base, Buffer(names.base, "I32"));
    GLYD_RETURN_IF_ERROR(CheckLength(p.data, DataBytes(p.meta)));
    GLYD_RETURN_IF_ERROR(CheckLength(p.base, steps + 1));
    return p;
  }

  absl::StatusOr<RawTensor> Raw(const ManifestTensor& entry) {
    RawTensor raw;
    GLYD_ASSIGN_OR_RETURN(raw.tensor, Take(entry.name));
    raw.sha256 = entry.sha256;
    return raw;
  }

  std::vector<const StoredTensor*> Unused() const {
    std::vector<const StoredTensor*> left;
    for (const StoredTensor& t : files_.tensors())
      if (!used_.contains(&t)) left.push_back(&t);
    return left;
  }

 private:
  absl::StatusOr<StoredTensor> Take(absl::string_view name) {
    const StoredTensor* t = files_.Find(name);
    if (t == nullptr)
      return absl::DataLossError(
          absl::StrCat(shown_, ": tensor \"", Printable(name), "\" is named there and in no file"));
    if (!used_.insert(t).second)
      return absl::DataLossError(absl::StrCat(shown_, ": tensor \"", Printable(name),
                                              "\" is used twice: as a pack's buffer and again"));
    return *t;
  }

  absl::StatusOr<StoredTensor> Buffer(absl::string_view name, absl::string_view dtype) {
    GLYD_ASSIGN_OR_RETURN(StoredTensor t, Take(name));
    if (t.dtype != dtype || t.shape.size() != 1)
      return absl::DataLossError(
          absl::StrCat(files_.files()[t.file].shown, ": buffer \"", Printable(name), "\" is ",
                       t.dtype, " of ", t.shape.size(), " dimensions, must be ", dtype, " of 1"));
    return t;
  }

  absl::Status CheckLength(const StoredTensor& t, uint64_t want) const {
    if (t.shape[0] == want) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(files_.files()[t.file].shown, ": buffer \"",
                                            Printable(t.name), "\" has ", t.shape[0],
                                            " elements, its pack's shape needs ", want));
  }

  const Checkpoint& files_;
  const std::string shown_;
  absl::flat_hash_set<const StoredTensor*> used_;
};

}  // namespace

absl::StatusOr<Save> Save::Open(const Dir& dir) {
  const std::string shown = Printable(absl::StrCat(dir.name(), "/", kManifestFile), 4096);
  const absl::StatusOr<OpenedFile> file = dir.OpenFile(kManifestFile);
  if (absl::IsNotFound(file.status()))
    return absl::NotFoundError(
        absl::StrCat(Printable(dir.name(), 4096), ": no ", kManifestFile, ": not a saved model"));
  if (!file.ok()) return file.status();
  GLYD_ASSIGN_OR_RETURN(std::string json, ReadJson(file->fd.get(), kMaxJsonBytes, shown));

  Save s;
  Sha256 hash;
  hash.Update(json.data(), json.size());
  s.manifest_sha256 = hash.Finish();
  GLYD_ASSIGN_OR_RETURN(Manifest m, Manifest::Parse(std::move(json), shown));
  s.format = std::move(m.format);
  s.version = std::move(m.version);
  s.source_repo = IsUtf8(m.repo) ? std::move(m.repo) : Printable(m.repo, 4096);
  s.source_revision = m.revision.value_or("");
  s.layout = m.layout;
  s.notes = std::move(m.notes);

  GLYD_ASSIGN_OR_RETURN(Checkpoint files, Checkpoint::Open(dir));
  s.notes.insert(s.notes.end(), files.notes().begin(), files.notes().end());
  Joiner join(files, shown);
  for (ManifestPack& entry : m.packs) {
    GLYD_ASSIGN_OR_RETURN(SavedPack p, join.Pack(std::move(entry)));
    s.bf16_bytes += 2 * p.meta.rows * p.meta.cols;
    s.packs.push_back(std::move(p));
  }
  for (const ManifestTensor& entry : m.tensors) {
    GLYD_ASSIGN_OR_RETURN(RawTensor raw, join.Raw(entry));
    s.tensors.push_back(std::move(raw));
  }
  std::vector<std::string> unnamed, other_dtypes;
  for (const StoredTensor* t : join.Unused()) {
    if (m.has_tensors)
      unnamed.push_back(absl::StrCat("\"", Printable(t->name), "\""));
    else
      s.tensors.push_back({*t, {}, false});
  }
  if (!unnamed.empty())
    return absl::DataLossError(absl::StrCat(shown, ": names no pack and no sha256 for ",
                                            unnamed.size(),
                                            " tensors that are in the files: ", ListSome(unnamed)));
  if (!m.has_tensors)
    s.notes.push_back(absl::StrCat(shown, ": of before version 0.25: names no sha256 for the ",
                                   s.tensors.size(), " tensors saved as they are"));
  for (const RawTensor& raw : s.tensors) {
    s.bf16_bytes += raw.tensor.bytes;
    if (raw.tensor.dtype != "BF16")
      other_dtypes.push_back(
          absl::StrCat("\"", Printable(raw.tensor.name), "\" ", raw.tensor.dtype));
  }
  if (!other_dtypes.empty())
    s.notes.push_back(absl::StrCat(shown, ": ", other_dtypes.size(),
                                   " tensors saved as they are are not BF16, which other readers "
                                   "of the format may refuse: ",
                                   ListSome(other_dtypes, 3)));
  for (const StoredTensor& t : files.tensors()) s.packed_bytes += t.bytes;
  s.files = std::move(files).TakeFiles();
  // A save is whole without a config.json, and one that does not parse is not the save's fault.
  if (const auto config = ModelConfig::Read(dir); config.ok())
    GLYD_RETURN_IF_ERROR(CheckFamilyShapes(s, *config, kConfigFile));
  return s;
}

}  // namespace glyd
