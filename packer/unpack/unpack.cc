#include "packer/unpack/unpack.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/extras.h"
#include "packer/internal/file_writer.h"
#include "packer/internal/no_memory.h"
#include "packer/model/config.h"
#include "packer/model/families.h"
#include "packer/pack/staging.h"
#include "packer/safetensors/writer.h"
#include "packer/verify/save_jobs.h"

namespace glyd {
namespace {

constexpr absl::string_view kHeadWeight = "lm_head.weight";
constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";

class Unpacker : public TensorSink {
 public:
  Unpacker(const Save& save, int threads, Progress& progress)
      : save_(save), threads_(threads), progress_(progress), outputs_(CountTensors(save)) {}

  // What to write, and where.
  absl::Status Plan(const Dir& save_dir) {
    const absl::StatusOr<ModelConfig> config = ModelConfig::Read(save_dir);
    if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
    const Family* family = config.ok() ? FindFamily(config->architecture) : nullptr;
    if (HasSourceNames(family)) family = nullptr;
    // Without the key a copy of the embedding is one, too: a head of its own is never the same.
    const bool tied = family != nullptr && config->tie_word_embeddings.value_or(true);
    size_t n = 0;
    for (const SavedPack& p : save_.packs)
      for (const PackMember& m : p.members) Add(n++, SourceName(family, m.name), "BF16", m.shape);
    for (const RawTensor& r : save_.tensors) {
      // The writer saves a tied head that does not pack as a copy of the embedding.
      if (tied && r.tensor.name == kHeadWeight && IsCopyOfEmbedding(r))
        ++n;
      else
        Add(n++, SourceName(family, r.tensor.name), r.tensor.dtype, r.tensor.shape);
    }
    // The save's order is its own; a checkpoint's shards are better cut by name.
    absl::c_sort(order_, [&](size_t a, size_t b) {
      return outputs_[a].tensor.name < outputs_[b].tensor.name;
    });
    for (size_t i : order_) {
      StoredTensor& t = outputs_[i].tensor;
      if (!tensors_.empty() && tensors_.back().name == t.name)
        return absl::InvalidArgumentError(absl::StrCat("two tensors of the save are \"",
                                                       Printable(t.name), "\" in the checkpoint"));
      tensors_.push_back(t);
    }
    for (StoredTensor& t : tensors_) {
      GLYD_ASSIGN_OR_RETURN(t.bytes, TensorBytes(t.dtype, t.shape));
    }
    files_ = PlanFiles(absl::MakeSpan(tensors_));
    for (size_t i = 0; i < order_.size(); ++i) outputs_[order_[i]].tensor = tensors_[i];
    return absl::OkStatus();
  }

  absl::Status Write(Staging& staging) {
    for (const PlannedFile& f : files_) {
      const std::string shown = absl::StrCat(staging.shown(), "/", f.name);
      GLYD_ASSIGN_OR_RETURN(UniqueFd fd, staging.CreateFile(f.name, f.bytes));
      GLYD_RETURN_IF_ERROR(PwriteFull(fd.get(), f.head.data(), f.head.size(), 0, shown));
      writer_.Add(std::move(fd), shown, f.bytes);
    }
    progress_.Phase("unpack", save_.bf16_bytes);
    GLYD_RETURN_IF_ERROR(ReadSave(save_, {.threads = threads_}, progress_, *this));
    progress_.Phase("sync", file_bytes());
    return writer_.Finish(progress_);
  }

  uint64_t file_bytes() const {
    uint64_t n = 0;
    for (const PlannedFile& f : files_) n += f.bytes;
    return n;
  }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::vector<PlannedFile>& files() const { return files_; }

  absl::Status Begin(size_t tensor) override {
    Output& o = outputs_[tensor];
    if (o.written) o.stream = {&writer_, o.tensor.file, o.tensor.offset};
    return absl::OkStatus();
  }
  absl::Status Bytes(size_t tensor, absl::Span<const uint8_t> bytes) override {
    return outputs_[tensor].written ? outputs_[tensor].stream.Append(bytes) : absl::OkStatus();
  }
  absl::Status End(size_t tensor, absl::Status verdict) override {
    GLYD_RETURN_IF_ERROR(verdict);
    Output& o = outputs_[tensor];
    return o.written ? o.stream.Flush() : absl::OkStatus();
  }

 private:
  struct Output {
    StoredTensor tensor;
    bool written = false;
    FileWriter::Stream stream;
  };

  // true for a save that holds names as the checkpoint had them though its config.json is a
  // family's: one of --any. glyd.json does not say so; what a family's save never holds does.
  bool HasSourceNames(const Family* family) const {
    if (family == nullptr) return false;
    // A family's embedding stays as it is, and of what is renamed only experts are packed.
    for (const SavedPack& p : save_.packs)
      for (const PackMember& m : p.members)
        if (m.name == kEmbedding || IsSourceName(family, m.name) ||
            (p.experts == 0 && SourceName(family, m.name) != m.name))
          return true;
    return absl::c_any_of(save_.tensors,
                          [&](const RawTensor& r) { return IsSourceName(family, r.tensor.name); });
  }

  bool IsCopyOfEmbedding(const RawTensor& head) const {
    return absl::c_any_of(save_.tensors, [&](const RawTensor& r) {
      return r.tensor.name == kEmbedding && r.has_sha256 && r.sha256 == head.sha256;
    });
  }

  void Add(size_t i, std::string name, absl::string_view dtype, std::vector<uint64_t> shape) {
    StoredTensor& t = outputs_[i].tensor;
    t.name = std::move(name);
    t.dtype = std::string(dtype);
    t.shape = std::move(shape);
    outputs_[i].written = true;
    order_.push_back(i);
  }

  const Save& save_;
  const int threads_;
  Progress& progress_;
  std::vector<Output> outputs_;        // by the save's tensors
  std::vector<size_t> order_;          // of those that are written, by name
  std::vector<StoredTensor> tensors_;  // that are written, by name
  std::vector<PlannedFile> files_;
  FileWriter writer_;
};

absl::StatusOr<UnpackSummary> Unpack(const Save& save, const Dir& save_dir, const Dir& out_parent,
                                     const std::string& out_name, bool force, int threads,
                                     Progress& progress) {
  Unpacker unpacker(save, threads, progress);
  GLYD_RETURN_IF_ERROR(unpacker.Plan(save_dir));
  for (const std::string& note : save.notes) progress.Note(note);

  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> extras, ListModelExtras(save_dir, progress));
  Staging::Options output;
  output.force = force;
  output.replaceable = {kSingleFile, kIndexFile};
  output.written = ReplacedFiles(out_parent, out_name, extras, {});
  output.source = &save_dir;
  for (const SaveFile& f : save.files)
    output.source_files.emplace_back(f.opened.device, f.opened.inode);
  GLYD_ASSIGN_OR_RETURN(Staging staging, Staging::Create(out_parent, out_name, std::move(output)));
  GLYD_RETURN_IF_ERROR(staging.CheckRoom(unpacker.file_bytes()));
  const auto write = [&]() -> absl::Status {
    GLYD_RETURN_IF_ERROR(unpacker.Write(staging));
    if (unpacker.files().size() > 1)
      GLYD_RETURN_IF_ERROR(
          staging.WriteFile(kIndexFile, IndexJson(unpacker.tensors(), unpacker.files())));
    GLYD_RETURN_IF_ERROR(CopyModelExtras(save_dir, extras, staging));
    return staging.Publish();
  };
  GLYD_RETURN_IF_ERROR(Staging::TellNeed(write(), unpacker.file_bytes()));

  UnpackSummary summary;
  summary.tensors = unpacker.tensors().size();
  for (const StoredTensor& t : unpacker.tensors()) summary.bytes += t.bytes;
  summary.files = unpacker.files().size();
  return summary;
}

}  // namespace

absl::StatusOr<UnpackSummary> UnpackSave(const Save& save, const Dir& save_dir,
                                         const Dir& out_parent, const std::string& out_name,
                                         bool force, int threads, Progress& progress) {
  return WithoutBadAlloc(
      [&] { return Printable(save_dir.name(), 4096); }, 0,
      [&] { return Unpack(save, save_dir, out_parent, out_name, force, threads, progress); });
}

}  // namespace glyd
