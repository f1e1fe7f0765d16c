#include "packer/pack/model_packer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"
#include "packer/internal/file_writer.h"
#include "packer/internal/job_queue.h"
#include "packer/internal/no_memory.h"
#include "packer/internal/parts.h"
#include "packer/pack/row_encoder.h"

namespace glyd {
namespace {

// Of matrices that Measure keeps in memory between its two looks at them, all threads together; a
// larger one is read twice.
constexpr uint64_t kHeldBytes = 128 << 20;

uint64_t SourceBytes(const PlanItem& item) {
  uint64_t n = 0;
  for (const PlanMember& m : item.members) n += m.source->bytes;
  return n;
}

// Of memory that the work on an item takes: a row block that is larger than a piece is held whole,
// as its bytes are hashed row by row and packed step by step.
uint64_t Need(const PlanItem& item) {
  if (!item.packed()) return kLaneBytes;
  const uint64_t block = 2 * kStepRows * item.cols, steps = item.rows * item.cols / kStepWeights;
  return kLaneBytes + (block > kPieceBytes ? block : 0) + sizeof(int32_t) * steps;
}

std::string ShownName(const PlanItem& item) {
  return absl::StrCat("tensor \"", Printable(item.members[0].source->name), "\"");
}

const uint16_t* Weights(const uint8_t* bytes) { return reinterpret_cast<const uint16_t*>(bytes); }

}  // namespace

// A pack: each piece of its members' rows is hashed and then packed.
class ModelPacker::PackJob : public HashJob {
 public:
  PackJob(ModelPacker& packer, size_t item, FileWriter& files, JobMemory& memory)
      : p_(packer),
        item_(packer.plan_.items[item]),
        state_(packer.states_[item]),
        memory_(memory),
        encoder_(state_.meta, &memory.pack) {
    const StoredTensor* t = &p_.tensors_[state_.first];
    for (int i = 0; i < 3; ++i) streams_[i] = {&files, t[i].file, t[i].offset};
  }

  absl::StatusOr<Piece> Next() override {
    const StoredTensor& source = *item_.members[member_].source;
    if (at_ == 0) p_.progress_.Item(source.name);
    const uint64_t n = std::min(PieceRows(item_.cols) * 2 * item_.cols, source.bytes - at_);
    uint8_t* const to = memory_.bytes.Get(n);
    GLYD_RETURN_IF_ERROR(p_.reader_.Read(source, at_, n, to));
    at_ += n;
    const bool ends_tensor = at_ == source.bytes;
    return Piece{{to, n}, ends_tensor, ends_tensor && member_ + 1 == item_.members.size()};
  }

  absl::Status Use(const Piece& piece) override {
    if (member_ == 0 && at_ == piece.bytes.size()) GLYD_RETURN_IF_ERROR(Zeros(encoder_.SideHead()));
    const uint16_t* const weights = Weights(piece.bytes.data());
    GLYD_RETURN_IF_ERROR(ForEachPart(piece.bytes.size() / (2 * item_.cols), item_.cols,
                                     [&](const MatrixPart& m) -> absl::Status {
                                       GLYD_RETURN_IF_ERROR(
                                           encoder_.Add(weights + m.row * item_.cols + m.col,
                                                        item_.cols, m.rows, m.cols));
                                       GLYD_RETURN_IF_ERROR(streams_[0].Append(encoder_.data()));
                                       return streams_[1].Append(encoder_.side());
                                     }));
    p_.progress_.Advance(piece.bytes.size());
    return absl::OkStatus();
  }

  absl::Status EndTensor(const Digest& digest) override {
    state_.sha256.push_back(digest);
    p_.reader_.Drop(*item_.members[member_].source);
    at_ = 0;
    if (++member_ < item_.members.size()) return absl::OkStatus();
    GLYD_RETURN_IF_ERROR(Zeros(encoder_.SideTail()));
    if (encoder_.side_bytes() != state_.side_bytes)
      return absl::FailedPreconditionError(
          absl::StrCat("tensor \"", Printable(item_.members[0].source->name), "\" of ",
                       p_.checkpoint_.files()[item_.members[0].source->file].shown,
                       " changed while it was read"));
    const std::vector<int32_t>& base = encoder_.base();
    GLYD_RETURN_IF_ERROR(streams_[2].Append(
        {reinterpret_cast<const uint8_t*>(base.data()), base.size() * sizeof base[0]}));
    for (FileWriter::Stream& s : streams_) GLYD_RETURN_IF_ERROR(s.Flush());
    return absl::OkStatus();
  }

 private:
  absl::Status Zeros(uint64_t n) {
    static constexpr uint8_t kZeros[std::max(kMmaHeadBytes, kMmaTailBytes)] = {};
    return streams_[1].Append({kZeros, n});
  }

  ModelPacker& p_;
  const PlanItem& item_;
  State& state_;
  JobMemory& memory_;
  RowEncoder encoder_;
  FileWriter::Stream streams_[3];  // data, side, base
  size_t member_ = 0;
  uint64_t at_ = 0;  // in the member
};

// A tensor that is saved as it is.
class ModelPacker::RawJob : public HashJob {
 public:
  RawJob(ModelPacker& packer, size_t item, FileWriter& files, JobMemory& memory)
      : p_(packer),
        source_(*packer.plan_.items[item].members[0].source),
        state_(packer.states_[item]),
        memory_(memory) {
    const StoredTensor& t = p_.tensors_[state_.first];
    stream_ = {&files, t.file, t.offset};
  }

  absl::StatusOr<Piece> Next() override {
    if (at_ == 0) p_.progress_.Item(source_.name);
    const uint64_t n = std::min(kPieceBytes, source_.bytes - at_);
    uint8_t* const to = memory_.bytes.Get(n);
    GLYD_RETURN_IF_ERROR(p_.reader_.Read(source_, at_, n, to));
    at_ += n;
    return Piece{{to, n}, at_ == source_.bytes, at_ == source_.bytes};
  }

  absl::Status Use(const Piece& piece) override {
    p_.progress_.Advance(piece.bytes.size());
    return stream_.Append(piece.bytes);
  }

  absl::Status EndTensor(const Digest& digest) override {
    state_.sha256.push_back(digest);
    p_.reader_.Drop(source_);
    return stream_.Flush();
  }

 private:
  ModelPacker& p_;
  const StoredTensor& source_;
  State& state_;
  JobMemory& memory_;
  FileWriter::Stream stream_;
  uint64_t at_ = 0;
};

ModelPacker::ModelPacker(const SavePlan& plan, const Checkpoint& checkpoint, Layout layout,
                         int threads, uint64_t shard_bytes, Progress& progress)
    : plan_(plan),
      checkpoint_(checkpoint),
      layout_(layout),
      threads_(ThreadCount(threads)),
      shard_bytes_(shard_bytes),
      progress_(progress),
      reader_(checkpoint.files()),
      states_(plan.items.size()),
      by_size_(plan.items.size()) {
  std::iota(by_size_.begin(), by_size_.end(), size_t{0});
  std::stable_sort(by_size_.begin(), by_size_.end(), [&](size_t a, size_t b) {
    return SourceBytes(plan_.items[a]) > SourceBytes(plan_.items[b]);
  });
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
  const int workers = WorkerCount(threads_, packs.size());
  const auto need = [&](size_t i) {
    const PlanItem& item = plan_.items[packs[i]];
    return Need(item) + (IsHeld(item, workers) ? SourceBytes(item) : 0);
  };
  JobQueue queue(packs.size(), need);
  std::atomic<bool> stopped{false};
  const auto stop = [&] {
    return stopped.load(std::memory_order_relaxed) || progress_.cancelled();
  };
  const auto work = [&]() -> absl::Status {
    JobMemory memory;
    while (const std::optional<size_t> i = queue.Take(true, stop)) {
      const PlanItem& item = plan_.items[packs[*i]];
      GLYD_RETURN_IF_ERROR(
          WithoutBadAlloc([&] { return ShownName(item); }, need(*i),
                          [&] { return MeasurePack(packs[*i], IsHeld(item, workers), memory); }));
      memory.Trim(kHeldBytes / static_cast<uint64_t>(workers));
      queue.Done(*i);
    }
    return progress_.cancelled() ? absl::CancelledError("cancelled") : absl::OkStatus();
  };
  GLYD_RETURN_IF_ERROR(ParallelFor(static_cast<size_t>(workers), workers, progress_,
                                   [&](size_t, size_t) -> absl::Status {
                                     absl::Status s = work();
                                     if (!s.ok()) stopped = true;
                                     return s;
                                   }));
  GLYD_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
  PlaceTensors();
  return absl::OkStatus();
}

bool ModelPacker::IsHeld(const PlanItem& item, int workers) const {
  return layout_ == Layout::kMma &&
         SourceBytes(item) <= kHeldBytes / static_cast<uint64_t>(workers);
}

absl::Status ModelPacker::MeasurePack(size_t i, bool hold, JobMemory& memory) {
  const PlanItem& item = plan_.items[i];
  State& state = states_[i];
  progress_.Item(item.name);
  const uint64_t bytes = SourceBytes(item);
  // Exponents are counted in any order, steps are packed in their own.
  const uint64_t piece =
      layout_ == Layout::kMma ? PieceRows(item.cols) * 2 * item.cols : kPieceBytes;
  uint8_t* const memory_for = memory.bytes.Get(hold ? bytes : std::min(bytes, piece));
  // Every piece in turn: f(weights, bytes).
  const auto each_piece = [&](bool read, const auto& f) -> absl::Status {
    uint64_t base = 0;
    for (const PlanMember& m : item.members) {
      for (uint64_t at = 0; at < m.source->bytes;) {
        if (progress_.cancelled()) return absl::CancelledError("cancelled");
        const uint64_t n = std::min(piece, m.source->bytes - at);
        uint8_t* const to = memory_for + (hold ? base + at : 0);
        if (read) GLYD_RETURN_IF_ERROR(reader_.Read(*m.source, at, n, to));
        GLYD_RETURN_IF_ERROR(f(Weights(to), n));
        at += n;
      }
      base += m.source->bytes;
    }
    return absl::OkStatus();
  };
  ExponentHistogram histogram;
  GLYD_RETURN_IF_ERROR(each_piece(true, [&](const uint16_t* weights, uint64_t n) {
    histogram.Add(weights, n / 2);
    progress_.Advance(n);
    return absl::OkStatus();
  }));
  state.meta = ChooseCodes(layout_, item.rows, item.cols, histogram);
  if (layout_ == Layout::kMma12) {
    state.side_bytes = Mma12SideBytes(state.meta, histogram);
    return absl::OkStatus();
  }
  RowEncoder encoder(state.meta, &memory.pack);
  GLYD_RETURN_IF_ERROR(each_piece(!hold, [&](const uint16_t* weights, uint64_t n) {
    return ForEachPart(n / (2 * item.cols), item.cols, [&](const MatrixPart& m) {
      return encoder.Add(weights + m.row * item.cols + m.col, item.cols, m.rows, m.cols);
    });
  }));
  state.side_bytes = encoder.side_bytes();
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
  FileWriter files;
  for (const PlannedFile& f : files_) {
    GLYD_ASSIGN_OR_RETURN(UniqueFd fd, staging.CreateFile(f.name, f.bytes));
    const std::string shown = absl::StrCat(staging.shown(), "/", f.name);
    GLYD_RETURN_IF_ERROR(PwriteFull(fd.get(), f.head.data(), f.head.size(), 0, shown));
    files.Add(std::move(fd), shown, f.bytes);
  }
  uint64_t bytes = 0;
  for (const PlanItem& item : plan_.items) bytes += SourceBytes(item);
  progress_.Phase("pack", bytes);
  HashJobs jobs;
  jobs.n = by_size_.size();
  jobs.need = [&](size_t i) { return Need(plan_.items[by_size_[i]]); };
  jobs.name = [&](size_t i) { return ShownName(plan_.items[by_size_[i]]); };
  jobs.make = [&](size_t i, JobMemory& memory) -> std::unique_ptr<HashJob> {
    const size_t item = by_size_[i];
    if (plan_.items[item].packed()) return std::make_unique<PackJob>(*this, item, files, memory);
    return std::make_unique<RawJob>(*this, item, files, memory);
  };
  GLYD_RETURN_IF_ERROR(RunHashJobs(jobs, threads_, progress_));
  GLYD_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
  progress_.Phase("sync", file_bytes());
  return files.Finish(progress_);
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
