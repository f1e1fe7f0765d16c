#include "packer/verify/verify.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "packer/internal/parallel.h"
#include "packer/verify/tensor_decoder.h"

namespace glyd {
namespace {

constexpr uint64_t kWorkBytes = 256 << 20;

// One piece of work: a pack with its verdicts, or a tensor saved as it is.
struct Unit {
  const SavedPack* pack = nullptr;
  const RawTensor* raw = nullptr;
  size_t first = 0;    // of its verdicts
  uint64_t bytes = 0;  // of its tensors as the source holds them
};

uint64_t PackBytes(const SavedPack& p) { return p.data.bytes + p.side.bytes + p.base.bytes; }

class Verifier {
 public:
  Verifier(const Save& save, const VerifyOptions& options, Progress& progress, VerifyReport& report)
      : save_(save), options_(options), progress_(progress), report_(report), memory_(Memory()) {}

  absl::Status Run() {
    MakeUnits();
    const int threads = ThreadCount(options_.threads);
    std::vector<Scratch> scratch(static_cast<size_t>(threads));
    progress_.Phase(options_.quick ? "check" : "verify", report_.bytes);
    // A bad tensor does not end the work: every tensor gets its verdict.
    GLYD_RETURN_IF_ERROR(
        ParallelFor(units_.size(), threads, progress_, [&](size_t worker, size_t i) {
          const Unit& u = units_[i];
          progress_.Item(u.pack != nullptr ? u.pack->name : u.raw->tensor.name);
          const absl::Status s =
              u.pack != nullptr ? CheckPackUnit(u, scratch[worker]) : CheckRaw(u, scratch[worker]);
          scratch[worker].Trim();
          return s;
        }));
    for (const TensorVerdict& v : report_.verdicts) GLYD_RETURN_IF_ERROR(v.status);
    return absl::OkStatus();
  }

 private:
  uint64_t Memory() const {
    uint64_t largest = 0;
    for (const SavedPack& p : save_.packs) largest = std::max(largest, PackBytes(p));
    return kWorkBytes + largest;
  }

  void AddVerdict(const std::string& name, const SavedTensor& stored) {
    report_.verdicts.push_back({name, save_.files[stored.file].name, absl::OkStatus()});
  }

  void MakeUnits() {
    for (const SavedPack& p : save_.packs) {
      units_.push_back({&p, nullptr, report_.verdicts.size(), 2 * p.meta.rows * p.meta.cols});
      for (const PackMember& m : p.members) AddVerdict(m.name, p.data);
    }
    for (const RawTensor& r : save_.tensors) {
      if (!options_.quick) units_.push_back({nullptr, &r, report_.verdicts.size(), r.tensor.bytes});
      AddVerdict(r.tensor.name, r.tensor);
    }
    report_.packs = save_.packs.size();
    report_.tensors = report_.verdicts.size();
    for (const Unit& u : units_) report_.bytes += u.bytes;
    std::stable_sort(units_.begin(), units_.end(),
                     [](const Unit& a, const Unit& b) { return a.bytes > b.bytes; });
  }

  std::string Place(const std::string& name, const SavedTensor& stored) const {
    return absl::StrCat(save_.files[stored.file].shown, ": tensor \"", Printable(name), "\"");
  }

  // Of its bytes against its sha256.
  absl::Status Judge(
      const std::string& name, const SavedTensor& stored, const Digest& want,
      const std::function<absl::Status(
          const std::function<absl::Status(absl::Span<const uint8_t>, uint64_t)>&)>& stream) {
    Sha256 hash;
    GLYD_RETURN_IF_ERROR(stream([&](absl::Span<const uint8_t> piece, uint64_t) -> absl::Status {
      if (progress_.cancelled()) return absl::CancelledError("cancelled");
      hash.Update(piece.data(), piece.size());
      progress_.Advance(piece.size());
      return absl::OkStatus();
    }));
    const Digest got = hash.Finish();
    if (got == want) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(Place(name, stored), " has sha256 ", Hex(got),
                                            ", glyd.json names ", Hex(want)));
  }

  // A verdict, but for what ends all the work.
  absl::Status Settle(size_t verdict, absl::Status s) {
    if (absl::IsCancelled(s)) return s;
    report_.verdicts[verdict].status = std::move(s);
    return absl::OkStatus();
  }

  absl::Status CheckPackUnit(const Unit& u, Scratch& scratch) {
    const SavedPack& p = *u.pack;
    const ByteBudget::Hold hold(memory_, PackBytes(p));
    absl::StatusOr<LoadedPack> loaded = ReadPack(save_, p);
    absl::Status whole = loaded.status();
    if (whole.ok()) {
      const absl::Status check = CheckPack(loaded->view());
      if (!check.ok())
        whole = absl::Status(
            check.code(),
            absl::StrCat(save_.files[p.data.file].shown, ": pack \"", Printable(p.name),
                         "\" (tensor \"", Printable(p.members[0].name), "\"): ", check.message()));
    }
    if (!whole.ok() || options_.quick) {
      for (size_t i = 0; i < p.members.size(); ++i)
        GLYD_RETURN_IF_ERROR(Settle(u.first + i, whole));
      progress_.Advance(u.bytes);
      return absl::OkStatus();
    }
    const PackView view = loaded->view();
    for (size_t i = 0; i < p.members.size(); ++i)
      GLYD_RETURN_IF_ERROR(Settle(
          u.first + i, Judge(p.members[i].name, p.data, p.members[i].sha256,
                             [&](const auto& f) { return DecodeMember(p, view, i, scratch, f); })));
    return absl::OkStatus();
  }

  absl::Status CheckRaw(const Unit& u, Scratch& scratch) {
    const RawTensor& r = *u.raw;
    if (!r.has_sha256) return absl::OkStatus();
    return Settle(u.first, Judge(r.tensor.name, r.tensor, r.sha256, [&](const auto& f) {
                    return StreamRaw(save_, r.tensor, scratch, f);
                  }));
  }

  const Save& save_;
  const VerifyOptions& options_;
  Progress& progress_;
  VerifyReport& report_;
  ByteBudget memory_;
  std::vector<Unit> units_;
};

}  // namespace

absl::Status VerifySave(const Save& save, const VerifyOptions& options, Progress& progress,
                        VerifyReport* report) {
  *report = {};
  report->format = save.format;
  report->layout = std::string(LayoutName(save.layout));
  report->notes = save.notes;
  const absl::Status s = Verifier(save, options, progress, *report).Run();
  if (options.quick && s.ok()) report->verdicts.clear();
  return s;
}

}  // namespace glyd
