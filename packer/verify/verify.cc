#include "packer/verify/verify.h"

#include <utility>

#include "base/status_macros.h"
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

}  // namespace

absl::Status VerifySave(const Save& save, const VerifyOptions& options, Progress& progress,
                        VerifyReport* report) {
  *report = {};
  report->format = save.format;
  report->layout = std::string(LayoutName(save.layout));
  report->notes = save.notes;
  report->packs = save.packs.size();
  for (const SavedPack& p : save.packs) {
    report->bytes += 2 * p.meta.rows * p.meta.cols;
    for (const PackMember& m : p.members)
      report->verdicts.push_back({m.name, save.files[p.data.file].name, absl::OkStatus()});
  }
  for (const RawTensor& r : save.tensors) {
    if (!options.quick) report->bytes += r.tensor.bytes;
    report->verdicts.push_back({r.tensor.name, save.files[r.tensor.file].name, absl::OkStatus()});
  }
  report->tensors = report->verdicts.size();
  progress.Phase(options.quick ? "check" : "verify", report->bytes);
  Judge judge(report->verdicts);
  GLYD_RETURN_IF_ERROR(
      ReadSave(save, {.check_only = options.quick, .threads = options.threads}, progress, judge));
  for (const TensorVerdict& v : report->verdicts) GLYD_RETURN_IF_ERROR(v.status);
  if (options.quick) report->verdicts.clear();
  return absl::OkStatus();
}

}  // namespace glyd
