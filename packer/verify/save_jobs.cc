#include "packer/verify/save_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"
#include "packer/internal/job_queue.h"
#include "packer/internal/parts.h"
#include "packer/safetensors/tensor_reader.h"
#include "packer/verify/row_decoder.h"

namespace glyd {
namespace {

struct Shared {
  const Save& save;
  const SaveJobOptions& options;
  const TensorReader reader;
  Progress& progress;
  TensorSink& sink;

  std::string Place(absl::string_view name, const SavedTensor& stored) const {
    return absl::StrCat(save.files[stored.file].shown, ": tensor \"", Printable(name), "\"");
  }
  absl::Status Verdict(absl::string_view name, const SavedTensor& stored, const Digest& want,
                       const Digest& got) const {
    if (got == want) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(Place(name, stored), " has sha256 ", Hex(got),
                                            ", glyd.json names ", Hex(want)));
  }
};

// Square by square, so that both sides stay in cache.
void Transpose(const uint16_t* from, uint64_t rows, uint64_t cols, uint16_t* to) {
  constexpr uint64_t kSquare = 32;
  for (uint64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (uint64_t c0 = 0; c0 < cols; c0 += kSquare)
      for (uint64_t r = r0; r < std::min(rows, r0 + kSquare); ++r)
        for (uint64_t c = c0; c < std::min(cols, c0 + kSquare); ++c)
          to[c * rows + r] = from[r * cols + c];
}

class PackJob : public HashJob {
 public:
  PackJob(Shared& s, const SavedPack& pack, size_t first, JobMemory& memory)
      : s_(s), pack_(pack), first_(first), memory_(memory), decoder_(pack, s.reader, &memory) {}

  absl::StatusOr<Piece> Next() override {
    const absl::StatusOr<Piece> piece = Decode();
    if (piece.ok()) return piece;
    // The pack is bad: so is every tensor of it that is not done, and the work goes on elsewhere.
    const absl::Status verdict(
        piece.status().code(),
        absl::StrCat(s_.save.files[pack_.data.file].shown, ": pack \"", Printable(pack_.name),
                     "\" (tensor \"", Printable(pack_.members[member_].name),
                     "\"): ", piece.status().message()));
    for (; member_ < pack_.members.size(); ++member_)
      GLYD_RETURN_IF_ERROR(s_.sink.End(first_ + member_, verdict));
    return Piece{{}, false, true};
  }

  absl::Status Use(const Piece& piece) override {
    s_.progress.Advance(piece.bytes.size());
    return piece.bytes.empty() ? absl::OkStatus() : s_.sink.Bytes(first_ + member_, piece.bytes);
  }

  absl::Status EndTensor(const Digest& digest) override {
    const PackMember& m = pack_.members[member_];
    GLYD_RETURN_IF_ERROR(
        s_.sink.End(first_ + member_, s_.Verdict(m.name, pack_.data, m.sha256, digest)));
    done_ = 0;
    if (++member_ == pack_.members.size())
      for (const SavedTensor* t : {&pack_.data, &pack_.side, &pack_.base}) s_.reader.Drop(*t);
    return absl::OkStatus();
  }

 private:
  uint64_t MemberRows() const {
    return pack_.experts != 0 ? pack_.meta.rows : pack_.members[member_].shape[0];
  }

  uint64_t PieceRows() const {
    return pack_.transposed ? pack_.meta.rows / pack_.experts : glyd::PieceRows(pack_.meta.cols);
  }

  absl::StatusOr<Piece> Decode() {
    if (!open_) {
      s_.progress.Item(pack_.name);
      open_ = true;
      GLYD_RETURN_IF_ERROR(decoder_.Open());
    }
    if (s_.options.check_only) return Check();
    if (done_ == 0) GLYD_RETURN_IF_ERROR(s_.sink.Begin(first_ + member_));
    const uint64_t rows = std::min(PieceRows(), MemberRows() - done_);
    const uint64_t bytes = 2 * rows * pack_.meta.cols;
    auto* out = reinterpret_cast<uint16_t*>(memory_.bytes.Get(bytes));
    GLYD_RETURN_IF_ERROR(decoder_.Next(rows, out));
    if (pack_.transposed) {
      auto* const turned = reinterpret_cast<uint16_t*>(memory_.turned.Get(bytes));
      Transpose(out, rows, pack_.meta.cols, turned);
      out = turned;
    }
    done_ += rows;
    const bool ends_tensor = done_ == MemberRows();
    return Piece{{reinterpret_cast<const uint8_t*>(out), bytes},
                 ends_tensor,
                 ends_tensor && member_ + 1 == pack_.members.size()};
  }

  // All of the pack at once: there is nothing to hash.
  absl::StatusOr<Piece> Check() {
    for (uint64_t row = 0; row < pack_.meta.rows;) {
      if (s_.progress.cancelled()) return absl::CancelledError("cancelled");
      const uint64_t rows = std::min(PieceRows(), pack_.meta.rows - row);
      GLYD_RETURN_IF_ERROR(decoder_.Next(rows, nullptr));
      s_.progress.Advance(2 * rows * pack_.meta.cols);
      row += rows;
    }
    for (; member_ < pack_.members.size(); ++member_)
      GLYD_RETURN_IF_ERROR(s_.sink.End(first_ + member_, absl::OkStatus()));
    return Piece{{}, false, true};
  }

  Shared& s_;
  const SavedPack& pack_;
  const size_t first_;
  JobMemory& memory_;
  RowDecoder decoder_;
  bool open_ = false;
  size_t member_ = 0;
  uint64_t done_ = 0;  // rows of the member
};

class RawJob : public HashJob {
 public:
  RawJob(Shared& s, const RawTensor& raw, size_t index, JobMemory& memory)
      : s_(s), raw_(raw), index_(index), memory_(memory) {}

  absl::StatusOr<Piece> Next() override {
    if (at_ == 0) {
      s_.progress.Item(raw_.tensor.name);
      GLYD_RETURN_IF_ERROR(s_.sink.Begin(index_));
    }
    const uint64_t n = std::min(kPieceBytes, raw_.tensor.bytes - at_);
    uint8_t* const to = memory_.bytes.Get(n);
    if (const absl::Status read = s_.reader.Read(raw_.tensor, at_, n, to); !read.ok()) {
      GLYD_RETURN_IF_ERROR(s_.sink.End(
          index_, absl::Status(read.code(), absl::StrCat(s_.Place(raw_.tensor.name, raw_.tensor),
                                                         ": ", read.message()))));
      return Piece{{}, false, true};
    }
    at_ += n;
    return Piece{{to, n}, at_ == raw_.tensor.bytes, at_ == raw_.tensor.bytes};
  }

  absl::Status Use(const Piece& piece) override {
    s_.progress.Advance(piece.bytes.size());
    return piece.bytes.empty() ? absl::OkStatus() : s_.sink.Bytes(index_, piece.bytes);
  }

  absl::Status EndTensor(const Digest& digest) override {
    s_.reader.Drop(raw_.tensor);
    return s_.sink.End(index_, raw_.has_sha256
                                   ? s_.Verdict(raw_.tensor.name, raw_.tensor, raw_.sha256, digest)
                                   : absl::OkStatus());
  }

 private:
  Shared& s_;
  const RawTensor& raw_;
  const size_t index_;
  JobMemory& memory_;
  uint64_t at_ = 0;
};

// A pack or a tensor saved as it is.
struct Unit {
  const SavedPack* pack = nullptr;
  const RawTensor* raw = nullptr;
  size_t first = 0;
  uint64_t bytes = 0;  // of its tensors as the source holds them
};

// Of memory that the work on a unit takes: what is decoded at once of a row block or an expert is
// held whole, as it is hashed in another order.
uint64_t Need(const Unit& u, bool check_only) {
  if (u.pack == nullptr) return kLaneBytes;
  const PackMeta& m = u.pack->meta;
  uint64_t decoded = 2 * kStepRows * m.cols;
  if (u.pack->transposed) decoded = 2 * 2 * (m.rows / u.pack->experts) * m.cols;
  return kLaneBytes + (decoded > kPieceBytes && !check_only ? decoded : 0) +
         sizeof(int32_t) * StepCount(m);
}

}  // namespace

size_t CountTensors(const Save& save) {
  size_t n = save.tensors.size();
  for (const SavedPack& p : save.packs) n += p.members.size();
  return n;
}

absl::Status ReadSave(const Save& save, const SaveJobOptions& options, Progress& progress,
                      TensorSink& sink) {
  std::vector<Unit> units;
  size_t tensors = 0;
  for (const SavedPack& p : save.packs) {
    units.push_back({&p, nullptr, tensors, 2 * p.meta.rows * p.meta.cols});
    tensors += p.members.size();
  }
  for (const RawTensor& r : save.tensors) {
    if (!options.check_only) units.push_back({nullptr, &r, tensors, r.tensor.bytes});
    ++tensors;
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.bytes > b.bytes; });
  Shared shared{save, options, TensorReader(save.files), progress, sink};
  HashJobs jobs;
  jobs.n = units.size();
  jobs.need = [&](size_t i) { return Need(units[i], options.check_only); };
  jobs.name = [&](size_t i) {
    const Unit& u = units[i];
    return absl::StrCat("tensor \"",
                        Printable(u.pack != nullptr ? u.pack->members[0].name : u.raw->tensor.name),
                        "\"");
  };
  jobs.make = [&](size_t i, JobMemory& memory) -> std::unique_ptr<HashJob> {
    const Unit& u = units[i];
    if (u.pack != nullptr) return std::make_unique<PackJob>(shared, *u.pack, u.first, memory);
    return std::make_unique<RawJob>(shared, *u.raw, u.first, memory);
  };
  return RunHashJobs(jobs, options.threads, progress);
}

}  // namespace glyd
