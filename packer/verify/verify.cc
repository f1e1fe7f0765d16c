#include "packer/verify/verify.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "packer/internal/json.h"
#include "packer/internal/looks_like.h"
#include "packer/internal/no_memory.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/verify/save_jobs.h"

namespace glyd {
namespace {

// Keeps the verdicts. Each tensor's is its own, so threads need no lock.
class Judge : public TensorSink {
 public:
  explicit Judge(std::vector<TensorVerdict>& verdicts) : verdicts_(verdicts) {}
  // A bad tensor does not end the work: every one gets its verdict.
  absl::Status End(size_t tensor, absl::Status verdict) override {
    verdicts_[tensor].status = std::move(verdict);
    return absl::OkStatus();
  }

 private:
  std::vector<TensorVerdict>& verdicts_;
};

// The names in glyd.json, as far as it can be read: packs' tensors, then those saved as they are.
void AppendNames(std::string json, std::vector<std::string>* names) {
  namespace sj = json::sj;
  std::vector<std::string> raw;
  const auto member = [&](absl::string_view key, sj::value v) {
    return key == "name" ? json::GetString(v, "", &names->emplace_back()) : absl::OkStatus();
  };
  const auto pack = [&](absl::string_view, sj::value v) -> absl::Status {
    sj::object entry;
    GLYD_RETURN_IF_ERROR(json::GetObject(v, "", &entry));
    return json::ForEachField(entry, "", [&](absl::string_view key, sj::value value) {
      sj::array list;
      if (key != "tensors" || !json::GetArray(value, "", &list).ok()) return absl::OkStatus();
      return json::ForEachElement(list, "", [&](sj::value m) -> absl::Status {
        sj::object one;
        GLYD_RETURN_IF_ERROR(json::GetObject(m, "", &one));
        return json::ForEachField(one, "", member);
      });
    });
  };
  json::ParseObject(json, "", [&](absl::string_view key, sj::value v) {
    sj::object object;
    if ((key != "packs" && key != "tensors") || !json::GetObject(v, "", &object).ok())
      return absl::OkStatus();
    if (key == "packs") return json::ForEachField(object, "", pack);
    return json::ForEachField(object, "", [&](absl::string_view name, sj::value) {
      raw.emplace_back(name);
      return absl::OkStatus();
    });
  }).IgnoreError();
  names->insert(names->end(), raw.begin(), raw.end());
}

// The tensors of a save that does not open: those that glyd.json names, or those in its files.
std::vector<TensorVerdict> NamedTensors(const Dir& dir) {
  std::vector<std::string> names;
  if (const auto file = dir.OpenFile(kManifestFile); file.ok())
    if (auto text = ReadJson(file->fd.get(), kMaxJsonBytes, ""); text.ok())
      AppendNames(*std::move(text), &names);
  const absl::StatusOr<Checkpoint> files = Checkpoint::Open(dir);
  if (names.empty() && files.ok())
    for (const StoredTensor& t : files->tensors()) names.push_back(t.name);
  std::vector<TensorVerdict> verdicts;
  absl::flat_hash_set<std::string> seen;
  for (std::string& name : names) {
    if (!seen.insert(name).second) continue;
    TensorVerdict& v = verdicts.emplace_back();
    const StoredTensor* t = files.ok() ? files->Find(name) : nullptr;
    if (t != nullptr) v.file = files->files()[t->file].name;
    v.name = std::move(name);
  }
  return verdicts;
}

absl::Status Verify(const Save& save, const VerifyOptions& options, Progress& progress,
                    VerifyReport* report) {
  *report = {};
  report->format = save.format;
  report->layout = std::string(LayoutName(save.layout));
  report->notes = save.notes;
  report->packs = save.packs.size();
  const Checked most = options.quick ? Checked::kStructure : Checked::kHashed;
  for (const SavedPack& p : save.packs) {
    report->bytes += 2 * p.meta.rows * p.meta.cols;
    for (const PackMember& m : p.members)
      report->verdicts.push_back({m.name, save.files[p.data.file].name, absl::OkStatus(), most});
  }
  for (const RawTensor& r : save.tensors) {
    if (!options.quick) report->bytes += r.tensor.bytes;
    report->verdicts.push_back({r.tensor.name, save.files[r.tensor.file].name, absl::OkStatus(),
                                r.has_sha256 ? most : Checked::kStructure});
  }
  report->tensors = report->verdicts.size();
  progress.Phase(options.quick ? "check" : "verify", report->bytes);
  Judge judge(report->verdicts);
  GLYD_RETURN_IF_ERROR(
      ReadSave(save, {.check_only = options.quick, .threads = options.threads}, progress, judge));
  for (const TensorVerdict& v : report->verdicts) GLYD_RETURN_IF_ERROR(v.status);
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifySave(const Save& save, const VerifyOptions& options, Progress& progress,
                        VerifyReport* report) {
  return WithoutBadAlloc([] { return std::string("verify"); }, 0,
                         [&] { return Verify(save, options, progress, report); });
}

absl::Status VerifyDir(const Dir& dir, const VerifyOptions& options, Progress& progress,
                       VerifyReport* report) {
  const absl::StatusOr<Save> save = Save::Open(dir);
  if (save.ok()) return VerifySave(*save, options, progress, report);
  *report = {};
  const absl::Status unknown =
      absl::FailedPreconditionError(absl::StrCat("not checked: ", save.status().message()));
  for (TensorVerdict& v : NamedTensors(dir)) {
    const bool named =
        absl::StrContains(save.status().message(), absl::StrCat("\"", Printable(v.name), "\""));
    v.status = named ? save.status() : unknown;
    v.checked = named ? Checked::kStructure : Checked::kNothing;
    report->verdicts.push_back(std::move(v));
  }
  report->tensors = report->verdicts.size();
  return save.status();
}

}  // namespace glyd
