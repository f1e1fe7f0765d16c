#include "packer/unpack/unpack.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "packer/internal/extras.h"
#include "packer/internal/parallel.h"
#include "packer/model/config.h"
#include "packer/model/families.h"
#include "packer/pack/staging.h"
#include "packer/safetensors/writer.h"
#include "packer/verify/tensor_decoder.h"

namespace glyd {
namespace {

constexpr uint64_t kWorkBytes = 256 << 20;
constexpr absl::string_view kHeadWeight = "lm_head.weight";
constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";

using Sink = std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>;

// A pack whose members are to be written, or a tensor saved as it is.
struct Unit {
  const SavedPack* pack = nullptr;
  const RawTensor* raw = nullptr;
  std::vector<size_t> outputs;  // by member, into the planned tensors
  uint64_t bytes = 0;
};

class Unpacker {
 public:
  Unpacker(const Save& save, int threads, Progress& progress)
      : save_(save), threads_(ThreadCount(threads)), progress_(progress), memory_(Memory()) {}

  // What to write, and where.
  absl::Status Plan(const Dir& save_dir) {
    const absl::StatusOr<ModelConfig> config = ModelConfig::Read(save_dir);
    if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
    const Family* family = config.ok() ? FindFamily(config->architecture) : nullptr;
    const bool tied = family != nullptr && config->tie_word_embeddings.value_or(false);
    for (const SavedPack& p : save_.packs) {
      Unit& u = units_.emplace_back();
      u.pack = &p;
      u.bytes = 2 * p.meta.rows * p.meta.cols;
      for (const PackMember& m : p.members)
        u.outputs.push_back(Add(SourceName(family, m.name), "BF16", m.shape));
    }
    for (const RawTensor& r : save_.tensors) {
      // The writer saves a tied head that does not pack as a copy of the embedding.
      if (tied && r.tensor.name == kHeadWeight && IsCopyOfEmbedding(r)) continue;
      Unit& u = units_.emplace_back();
      u.raw = &r;
      u.bytes = r.tensor.bytes;
      u.outputs.push_back(Add(SourceName(family, r.tensor.name), r.tensor.dtype, r.tensor.shape));
    }
    SortByName();
    for (StoredTensor& t : tensors_) {
      GLYD_ASSIGN_OR_RETURN(t.bytes, TensorBytes(t.dtype, t.shape));
    }
    files_ = PlanFiles(absl::MakeSpan(tensors_));
    return absl::OkStatus();
  }

  absl::Status Write(Staging& staging) {
    for (const PlannedFile& f : files_) {
      shown_.push_back(absl::StrCat(staging.shown(), "/", f.name));
      GLYD_ASSIGN_OR_RETURN(UniqueFd fd, staging.CreateFile(f.name, f.bytes));
      GLYD_RETURN_IF_ERROR(PwriteFull(fd.get(), f.head.data(), f.head.size(), 0, shown_.back()));
      fds_.push_back(std::move(fd));
    }
    uint64_t bytes = 0;
    for (const Unit& u : units_) bytes += u.bytes;
    std::stable_sort(units_.begin(), units_.end(),
                     [](const Unit& a, const Unit& b) { return a.bytes > b.bytes; });
    std::vector<Scratch> scratch(static_cast<size_t>(threads_));
    progress_.Phase("unpack", bytes);
    GLYD_RETURN_IF_ERROR(
        ParallelFor(units_.size(), threads_, progress_, [&](size_t worker, size_t i) {
          const absl::Status s = WriteUnit(units_[i], scratch[worker]);
          scratch[worker].Trim();
          return s;
        }));
    for (size_t i = 0; i < fds_.size(); ++i) GLYD_RETURN_IF_ERROR(Sync(fds_[i].get(), shown_[i]));
    return absl::OkStatus();
  }

  uint64_t file_bytes() const {
    uint64_t n = 0;
    for (const PlannedFile& f : files_) n += f.bytes;
    return n;
  }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::vector<PlannedFile>& files() const { return files_; }

 private:
  uint64_t Memory() const {
    uint64_t largest = 0;
    for (const SavedPack& p : save_.packs)
      largest = std::max(largest, p.data.bytes + p.side.bytes + p.base.bytes);
    return kWorkBytes + largest;
  }

  bool IsCopyOfEmbedding(const RawTensor& head) const {
    return absl::c_any_of(save_.tensors, [&](const RawTensor& r) {
      return r.tensor.name == kEmbedding && r.has_sha256 && r.sha256 == head.sha256;
    });
  }

  size_t Add(std::string name, absl::string_view dtype, std::vector<uint64_t> shape) {
    StoredTensor& t = tensors_.emplace_back();
    t.name = std::move(name);
    t.dtype = std::string(dtype);
    t.shape = std::move(shape);
    return tensors_.size() - 1;
  }

  // The save's order is its own; a checkpoint's shards are better cut by name.
  void SortByName() {
    std::vector<size_t> order(tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    absl::c_sort(order, [&](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
    std::vector<StoredTensor> sorted;
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.push_back(std::move(tensors_[order[i]]));
    }
    tensors_ = std::move(sorted);
    for (Unit& u : units_)
      for (size_t& o : u.outputs) o = place[o];
  }

  absl::Status WriteUnit(const Unit& u, Scratch& scratch) {
    progress_.Item(u.pack != nullptr ? u.pack->name : u.raw->tensor.name);
    if (u.raw != nullptr)
      return WriteTensor(
          u.outputs[0], u.raw->has_sha256 ? &u.raw->sha256 : nullptr,
          [&](const Sink& f) { return StreamRaw(save_, u.raw->tensor, scratch, f); });
    const SavedPack& p = *u.pack;
    const ByteBudget::Hold hold(memory_, p.data.bytes + p.side.bytes + p.base.bytes);
    GLYD_ASSIGN_OR_RETURN(const LoadedPack loaded, ReadPack(save_, p));
    const PackView view = loaded.view();
    if (const absl::Status s = CheckPack(view); !s.ok())
      return absl::Status(s.code(), absl::StrCat(save_.files[p.data.file].shown, ": pack \"",
                                                 Printable(p.name), "\": ", s.message()));
    for (size_t i = 0; i < p.members.size(); ++i)
      GLYD_RETURN_IF_ERROR(WriteTensor(u.outputs[i], &p.members[i].sha256, [&](const Sink& f) {
        return DecodeMember(p, view, i, scratch, f);
      }));
    return absl::OkStatus();
  }

  absl::Status WriteTensor(size_t output, const Digest* want,
                           const std::function<absl::Status(const Sink&)>& stream) {
    const StoredTensor& t = tensors_[output];
    const int fd = fds_[t.file].get();
    Sha256 hash;
    GLYD_RETURN_IF_ERROR(stream([&](absl::Span<const uint8_t> piece, uint64_t at) -> absl::Status {
      if (progress_.cancelled()) return absl::CancelledError("cancelled");
      hash.Update(piece.data(), piece.size());
      progress_.Advance(piece.size());
      return PwriteFull(fd, piece.data(), piece.size(), t.offset + at, shown_[t.file]);
    }));
    const Digest got = hash.Finish();
    if (want == nullptr || got == *want) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("tensor \"", Printable(t.name), "\" has sha256 ",
                                            Hex(got), ", glyd.json names ", Hex(*want)));
  }

  const Save& save_;
  const int threads_;
  Progress& progress_;
  ByteBudget memory_;
  std::vector<Unit> units_;
  std::vector<StoredTensor> tensors_;
  std::vector<PlannedFile> files_;
  std::vector<UniqueFd> fds_;
  std::vector<std::string> shown_;
};

}  // namespace

absl::StatusOr<UnpackSummary> UnpackSave(const Save& save, const Dir& save_dir,
                                         const Dir& out_parent, const std::string& out_name,
                                         bool force, int threads, Progress& progress) {
  Unpacker unpacker(save, threads, progress);
  GLYD_RETURN_IF_ERROR(unpacker.Plan(save_dir));
  for (const std::string& note : save.notes) progress.Note(note);

  Staging::Options output;
  output.force = force;
  output.replaceable = {kSingleFile, kIndexFile};
  output.source = &save_dir;
  for (const SaveFile& f : save.files)
    output.source_files.emplace_back(f.opened.device, f.opened.inode);
  GLYD_ASSIGN_OR_RETURN(Staging staging, Staging::Create(out_parent, out_name, std::move(output)));
  GLYD_RETURN_IF_ERROR(staging.CheckRoom(unpacker.file_bytes()));
  if (const absl::Status s = unpacker.Write(staging); absl::IsResourceExhausted(s))
    return absl::ResourceExhaustedError(absl::StrCat(s.message(), "; the whole checkpoint needs ",
                                                     unpacker.file_bytes(), " bytes"));
  else
    GLYD_RETURN_IF_ERROR(s);
  if (unpacker.files().size() > 1)
    GLYD_RETURN_IF_ERROR(
        staging.WriteFile(kIndexFile, IndexJson(unpacker.tensors(), unpacker.files())));
  GLYD_RETURN_IF_ERROR(CopyModelExtras(save_dir, staging, progress));
  GLYD_RETURN_IF_ERROR(staging.Publish());

  UnpackSummary summary;
  summary.tensors = unpacker.tensors().size();
  for (const StoredTensor& t : unpacker.tensors()) summary.bytes += t.bytes;
  summary.files = unpacker.files().size();
  return summary;
}

}  // namespace glyd
