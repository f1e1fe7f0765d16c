#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "packer/pack/pack.h"
#include "packer/pack/staging.h"
#include "packer/verify/verify.h"
#include "server/worker/channel.h"

namespace glyd {
namespace {

using SharedFd = std::shared_ptr<const UniqueFd>;

// The parent of `relative` and its last part.
absl::StatusOr<std::pair<Dir, std::string>> SplitOutput(const SharedFd& root,
                                                        const std::string& root_name,
                                                        const std::string& relative) {
  const size_t slash = relative.rfind('/');
  GLYD_ASSIGN_OR_RETURN(
      Dir parent, Dir::OpenBeneath(root, root_name,
                                   slash == std::string::npos ? "." : relative.substr(0, slash)));
  return std::make_pair(std::move(parent),
                        slash == std::string::npos ? relative : relative.substr(slash + 1));
}

absl::StatusOr<std::string> RunPack(const worker::v1::RunJob& run,
                                    const std::vector<SharedFd>& roots, Progress& progress) {
  const glyd::v1::PackSpec& spec = run.spec().pack();
  if (roots.size() != 2) return absl::InternalError("a pack job without its roots");
  GLYD_ASSIGN_OR_RETURN(const ModelSource source,
                        FindModelBeneath(roots[0], run.source_root(), run.source_relative()));
  GLYD_ASSIGN_OR_RETURN(const auto output,
                        SplitOutput(roots[1], run.output_root(), run.output_relative()));
  PackOptions o;
  if (!spec.layout().empty()) {
    GLYD_ASSIGN_OR_RETURN(o.layout, ParseLayout(spec.layout()));
  }
  o.merge = !spec.no_merge();
  o.any = spec.any();
  o.force = spec.force();
  o.threads = static_cast<int>(spec.threads() != 0 ? spec.threads() : run.threads());
  o.repo = run.source_relative();
  o.revision = source.revision;
  o.file = source.file;
  GLYD_ASSIGN_OR_RETURN(const PackSummary s,
                        PackModel(source.dir, output.first, output.second, o, progress));
  for (const std::string& warning : s.warnings) progress.Note(warning);
  return nlohmann::json{{"output", spec.output()},
                        {"layout", std::string(LayoutName(o.layout))},
                        {"packs", s.packs},
                        {"packed_tensors", s.packed_tensors},
                        {"raw_tensors", s.raw_tensors},
                        {"packed_weights", s.packed_weights},
                        {"source_bytes", s.source_bytes},
                        {"saved_bytes", s.saved_bytes},
                        {"pack_bytes", s.pack_bytes},
                        {"raw_bytes", s.raw_bytes}}
      .dump();
}

// One that is being cancelled still holds its lock for a moment.
absl::StatusOr<std::string> RemoveLeftovers(const worker::v1::RunJob& run,
                                            const std::vector<SharedFd>& roots,
                                            const Progress& progress) {
  if (roots.size() != 2) return absl::InternalError("a pack job without its roots");
  GLYD_ASSIGN_OR_RETURN(const auto output,
                        SplitOutput(roots[1], run.output_root(), run.output_relative()));
  for (int i = 0;; ++i) {
    const absl::Status s = Staging::RemoveLeftovers(output.first, output.second);
    if (s.ok()) return std::string();
    if (!absl::IsAlreadyExists(s) || i == 100 || progress.cancelled()) return s;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::StatusOr<std::string> RunVerify(const worker::v1::RunJob& run,
                                      const std::vector<SharedFd>& roots, Progress& progress) {
  if (roots.empty()) return absl::InternalError("a verify job without its root");
  GLYD_ASSIGN_OR_RETURN(const Dir dir,
                        Dir::OpenBeneath(roots[0], run.source_root(), run.source_relative()));
  GLYD_ASSIGN_OR_RETURN(const Save save, Save::Open(dir));
  VerifyOptions o;
  o.quick = run.spec().verify().quick();
  o.threads = static_cast<int>(run.threads());
  VerifyReport report;
  GLYD_RETURN_IF_ERROR(VerifySave(save, o, progress, &report));
  for (const std::string& note : report.notes) progress.Note(note);
  return nlohmann::json{{"path", run.spec().verify().path()},
                        {"format", report.format},
                        {"layout", report.layout},
                        {"packs", report.packs},
                        {"tensors", report.tensors},
                        {"bytes", report.bytes}}
      .dump();
}

}  // namespace

int RunJobWorker(int socket) {
  Channel channel(socket);
  std::atomic<bool> cancelled = false;
  std::thread job;
  worker::v1::ToWorker m;
  std::vector<UniqueFd> fds;
  while (channel.Receive(&m, &fds)) {
    if (m.has_cancel()) cancelled = true;
    if (m.has_run_job() && !job.joinable()) {
      std::vector<SharedFd> roots;
      for (UniqueFd& fd : fds) roots.push_back(std::make_shared<const UniqueFd>(std::move(fd)));
      job = std::thread(
          [&channel, &cancelled, call = m.call(), run = m.run_job(), roots = std::move(roots)] {
            CallProgress progress(&channel, call, [&cancelled] { return cancelled.load(); });
            const auto result = run.remove_leftovers()  ? RemoveLeftovers(run, roots, progress)
                                : run.spec().has_pack() ? RunPack(run, roots, progress)
                                                        : RunVerify(run, roots, progress);
            if (!result.ok()) return channel.SendError(call, result.status());
            worker::v1::Done done;
            done.set_result_json(*result);
            channel.SendDone(call, std::move(done));
          });
    }
    fds.clear();
  }
  // The socket's end is a cancel: what the job wrote is removed before the process goes.
  cancelled = true;
  if (job.joinable()) job.join();
  return 0;
}

}  // namespace glyd
