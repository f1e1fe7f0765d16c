#include "packer/pack/model_packer.h"

#include <fcntl.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

// Of packs kept from Measure to Write. With the budget below, what a small model takes; a large one
// reads twice.
constexpr uint64_t kKeptBytes = 160 << 20;
// Of matrices and packs at work, beside twice the largest matrix.
constexpr uint64_t kWorkBytes = 192 << 20;

uint64_t SourceBytes(const PlanItem& item) {
  uint64_t n = 0;
  for (const PlanMember& m : item.members) n += m.source->bytes;
  return n;
}

uint64_t LargestMatrix(const SavePlan& plan) {
  uint64_t n = 0;
  for (const PlanItem& item : plan.items)
    if (item.packed()) n = std::max(n, SourceBytes(item));
  return n;
}

}  // namespace

ModelPacker::ModelPacker(const SavePlan& plan, const Checkpoint& checkpoint, Layout layout,
                         int threads, uint64_t shard_bytes, Progress& progress)
    : plan_(plan),
      checkpoint_(checkpoint),
      layout_(layout),
      threads_(ThreadCount(threads)),
      shard_bytes_(shard_bytes),
      progress_(progress),
      reader_(checkpoint),
      memory_(kWorkBytes + 2 * LargestMatrix(plan)),
      scratch_(static_cast<size_t>(threads_)),
      states_(plan.items.size()),
      by_size_(plan.items.size()) {
  std::iota(by_size_.begin(), by_size_.end(), size_t{0});
  std::stable_sort(by_size_.begin(), by_size_.end(), [&](size_t a, size_t b) {
    return SourceBytes(plan_.items[a]) > SourceBytes(plan_.items[b]);
  });
}

bool ModelPacker::Keep(uint64_t bytes) {
  absl::MutexLock lock(&kept_mutex_);
  if (kept_bytes_ + bytes > kKeptBytes) return false;
  kept_bytes_ += bytes;
  return true;
}

absl::Status ModelPacker::ReadRows(const PlanItem& item, uint8_t* weights, State* hashes,
                                   ExponentHistogram* histogram) const {
  std::vector<SourceReader::Request> requests;
  if (hashes != nullptr) hashes->sha256.resize(item.members.size());
  for (size_t i = 0; i < item.members.size(); ++i) {
    SourceReader::Request& r = requests.emplace_back();
    r.tensor = item.members[i].source;
    r.to = weights;
    r.sha256 = hashes == nullptr ? nullptr : &hashes->sha256[i];
    r.histogram = histogram;
    weights += r.tensor->bytes;
  }
  return reader_.Read(requests);
}

absl::Status ModelPacker::Measure() {
  std::vector<size_t> packs;
  uint64_t bytes = 0;
  for (size_t i : by_size_) {
    if (!plan_.items[i].packed()) continue;
    packs.push_back(i);
    bytes += SourceBytes(plan_.items[i]);
  }
  progress_.Phase("measure", bytes);
  GLYD_RETURN_IF_ERROR(ParallelFor(packs.size(), threads_, progress_, [&](size_t worker, size_t i) {
    const absl::Status s = MeasurePack(scratch_[worker], packs[i]);
    scratch_[worker].Trim();
    return s;
  }));
  GLYD_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
  PlaceTensors();
  return absl::OkStatus();
}

absl::Status ModelPacker::MeasurePack(Scratch& scratch, size_t i) {
  const PlanItem& item = plan_.items[i];
  State& state = states_[i];
  const uint64_t bytes = SourceBytes(item);
  progress_.Item(item.name);
  const ByteBudget::Hold hold(memory_, 2 * bytes);
  uint8_t* const weights = scratch.Get(bytes);
  ExponentHistogram histogram;
  const bool keep = Keep(bytes);
  GLYD_RETURN_IF_ERROR(ReadRows(item, weights, keep ? &state : nullptr, &histogram));
  state.meta = ChooseCodes(layout_, item.rows, item.cols, histogram);
  GLYD_ASSIGN_OR_RETURN(EncodedPack pack,
                        Encode(state.meta, reinterpret_cast<const uint16_t*>(weights)));
  state.side_bytes = pack.side.size();
  if (keep) state.kept = std::make_unique<EncodedPack>(std::move(pack));
  progress_.Advance(bytes);
  return absl::OkStatus();
}

void ModelPacker::PlaceTensors() {
  const auto add = [&](const std::string& name, absl::string_view dtype, uint64_t bytes,
                       std::vector<uint64_t> shape) {
    StoredTensor& t = tensors_.emplace_back();
    t.name = name;
    t.dtype = std::string(dtype);
    t.shape = std::move(shape);
    t.bytes = bytes;
  };
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    State& s = states_[i];
    s.first = tensors_.size();
    if (!item.packed()) {
      const StoredTensor& t = *item.members[0].source;
      add(item.name, t.dtype, t.bytes, t.shape);
      continue;
    }
    const BufferNames names = PackBuffers(item.name, layout_, item.own_weight);
    const bool mma = layout_ == Layout::kMma;
    const uint64_t data = DataBytes(s.meta), base = StepCount(s.meta) + 1;
    add(names.data, "U8", data, {data});
    add(names.side, mma ? "U8" : "I32", s.side_bytes, {mma ? s.side_bytes : s.side_bytes / 4});
    add(names.base, "I32", 4 * base, {base});
  }
  files_ = PlanFiles(absl::MakeSpan(tensors_), shard_bytes_);
}

uint64_t ModelPacker::file_bytes() const {
  uint64_t n = 0;
  for (const PlannedFile& f : files_) n += f.bytes;
  return n;
}

absl::Status ModelPacker::Write(Staging& staging) {
  for (const PlannedFile& f : files_) {
    shown_.push_back(absl::StrCat(staging.shown(), "/", f.name));
    GLYD_ASSIGN_OR_RETURN(UniqueFd fd, staging.CreateFile(f.name, f.bytes));
    GLYD_RETURN_IF_ERROR(PwriteFull(fd.get(), f.head.data(), f.head.size(), 0, shown_.back()));
    fds_.push_back(std::move(fd));
  }
  uint64_t bytes = 0;
  for (const PlanItem& item : plan_.items) bytes += SourceBytes(item);
  progress_.Phase("pack", bytes);
  GLYD_RETURN_IF_ERROR(
      ParallelFor(by_size_.size(), threads_, progress_, [&](size_t worker, size_t i) {
        const absl::Status s = WriteItem(scratch_[worker], by_size_[i]);
        scratch_[worker].Trim();
        return s;
      }));
  GLYD_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
  progress_.Phase("sync", file_bytes());
  bool cold = false;
  for (size_t i = 0; i < checkpoint_.files().size(); ++i) cold = cold || reader_.cold(i);
  for (size_t i = 0; i < fds_.size(); ++i) {
    GLYD_RETURN_IF_ERROR(Sync(fds_[i].get(), shown_[i]));
    // A machine that did not hold the source in memory has no room for the save either.
    if (cold) (void)::posix_fadvise(fds_[i].get(), 0, 0, POSIX_FADV_DONTNEED);
    progress_.Advance(files_[i].bytes);
  }
  return absl::OkStatus();
}

absl::Status ModelPacker::WriteItem(Scratch& scratch, size_t i) {
  const PlanItem& item = plan_.items[i];
  progress_.Item(item.name);
  GLYD_RETURN_IF_ERROR(item.packed() ? WritePack(scratch, i) : WriteRaw(scratch, i));
  if (item.packed()) progress_.Advance(SourceBytes(item));
  return absl::OkStatus();
}

absl::Status ModelPacker::WritePack(Scratch& scratch, size_t i) {
  const PlanItem& item = plan_.items[i];
  State& state = states_[i];
  const uint64_t bytes = SourceBytes(item);
  std::unique_ptr<EncodedPack> pack = std::move(state.kept);
  const ByteBudget::Hold hold(memory_, pack == nullptr ? 2 * bytes : 0);
  if (pack == nullptr) {
    uint8_t* const weights = scratch.Get(bytes);
    GLYD_RETURN_IF_ERROR(ReadRows(item, weights, &state, nullptr));
    GLYD_ASSIGN_OR_RETURN(EncodedPack encoded,
                          Encode(state.meta, reinterpret_cast<const uint16_t*>(weights)));
    pack = std::make_unique<EncodedPack>(std::move(encoded));
  }
  if (pack->side.size() != state.side_bytes)
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint_.files()[item.members[0].source->file].shown, ": tensor \"",
                     Printable(item.members[0].source->name), "\" changed while it was read"));
  const StoredTensor* t = &tensors_[state.first];
  GLYD_RETURN_IF_ERROR(Put(t[0], pack->data.data(), t[0].bytes, 0));
  GLYD_RETURN_IF_ERROR(Put(t[1], pack->side.data(), t[1].bytes, 0));
  return Put(t[2], pack->base.data(), t[2].bytes, 0);
}

absl::Status ModelPacker::WriteRaw(Scratch& scratch, size_t i) {
  const StoredTensor& source = *plan_.items[i].members[0].source;
  const StoredTensor& to = tensors_[states_[i].first];
  Sha256 hash;
  GLYD_RETURN_IF_ERROR(
      reader_.Stream(source, scratch.Get(SourceReader::kPieceBytes),
                     [&](absl::Span<const uint8_t> piece, uint64_t at) -> absl::Status {
                       if (progress_.cancelled()) return absl::CancelledError("cancelled");
                       hash.Update(piece.data(), piece.size());
                       progress_.Advance(piece.size());
                       return Put(to, piece.data(), piece.size(), at);
                     }));
  states_[i].sha256 = {hash.Finish()};
  return absl::OkStatus();
}

absl::Status ModelPacker::Put(const StoredTensor& tensor, const void* data, uint64_t bytes,
                              uint64_t at) const {
  const int fd = fds_[tensor.file].get();
  GLYD_RETURN_IF_ERROR(PwriteFull(fd, data, bytes, tensor.offset + at, shown_[tensor.file]));
  // The disk starts now, not at the fsync in the end. Advice: an error would come again there.
  constexpr uint64_t kWorthAsking = 1 << 20;
  if (bytes >= kWorthAsking)
    (void)::sync_file_range(fd, static_cast<off_t>(tensor.offset + at), static_cast<off_t>(bytes),
                            SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

void ModelPacker::FillManifest(Manifest* manifest) const {
  bool experts = false;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    const State& state = states_[i];
    if (!item.packed()) {
      manifest->tensors.push_back({item.name, state.sha256[0]});
      continue;
    }
    ManifestPack& p = manifest->packs.emplace_back();
    p.name = item.name;
    p.meta = state.meta;
    p.experts = item.experts;
    experts = experts || item.experts != 0;
    for (size_t m = 0; m < item.members.size(); ++m)
      p.members.push_back({item.members[m].name, item.members[m].source->shape, state.sha256[m]});
  }
  manifest->layout = layout_;
  manifest->format = std::string(FormatName(layout_, experts));
}

}  // namespace glyd
