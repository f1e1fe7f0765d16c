#include "server/core/jobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/core/errors.h"
#include "server/core/log.h"
#include "server/core/proto_time.h"

namespace glyd {
namespace {

using glyd::v1::Job;
using glyd::v1::JobSpec;
using worker::v1::FromWorker;
using worker::v1::ToWorker;

bool Ended(const Job& job) {
  return job.state() == glyd::v1::JOB_STATE_SUCCEEDED ||
         job.state() == glyd::v1::JOB_STATE_FAILED || job.state() == glyd::v1::JOB_STATE_CANCELLED;
}

absl::Status BadSpec(absl::string_view text) {
  return WithReason(absl::InvalidArgumentError(text), "BAD_JOB");
}

}  // namespace

Jobs::Jobs(Options options, std::unique_ptr<Journal> journal, Models* models, const Roots* roots)
    : options_(std::move(options)), models_(models), roots_(roots), journal_(std::move(journal)) {}

Jobs::~Jobs() { Stop(); }

absl::Status Jobs::Check(const JobSpec& spec, Entry* e) const {
  switch (spec.kind_case()) {
    case JobSpec::kPack: {
      const glyd::v1::PackSpec& p = spec.pack();
      if (!p.layout().empty() && p.layout() != "mma" && p.layout() != "mma12")
        return BadSpec(absl::StrCat("layout \"", Printable(p.layout()), "\": want mma or mma12"));
      if (p.threads() > 1024) return BadSpec(absl::StrCat(p.threads(), " threads, at most 1024"));
      GLYD_ASSIGN_OR_RETURN(e->source, roots_->Resolve(p.source(), false));
      GLYD_ASSIGN_OR_RETURN(e->output, roots_->Resolve(p.output(), true));
      if (e->output.relative == ".")
        return BadSpec(absl::StrCat("output ", p.output(), " is a root itself"));
      return absl::OkStatus();
    }
    case JobSpec::kVerify: {
      GLYD_ASSIGN_OR_RETURN(e->source, roots_->Resolve(spec.verify().path(), false));
      return absl::OkStatus();
    }
    case JobSpec::kLoad:
      // What Models::Load would say, before the job is kept.
      GLYD_RETURN_IF_ERROR(CheckModelName(spec.load().name()));
      if (spec.load().device().size() > 128)
        return BadSpec(absl::StrCat("a device's name of ", spec.load().device().size(),
                                    " bytes, at most 128"));
      return roots_->Resolve(spec.load().path(), false).status();
    default:
      return BadSpec("a job is a pack, a verify or a load");
  }
}

absl::Status Jobs::Recover() {
  GLYD_ASSIGN_OR_RETURN(std::vector<Journal::Recovered> found, journal_->Recover());
  absl::MutexLock lock(&mu_);
  for (Journal::Recovered& r : found) {
    auto e = std::make_shared<Entry>();
    e->number = r.number;
    e->job = std::move(r.job);
    e->job.set_id(absl::StrCat(r.number));
    next_ = std::max(next_, r.number + 1);
    sequence_ = std::max(sequence_, e->job.sequence());
    jobs_[r.number] = e;
    if (!e->job.request_id().empty()) by_request_[e->job.request_id()] = r.number;
    absl::Status why;
    if (r.damaged) {
      e->job.set_state(glyd::v1::JOB_STATE_FAILED);
      e->job.set_error_reason("QUARANTINED");
      e->job.set_error("the journal's entry of this job was damaged and has been put aside");
      Log(LogLevel::kError, "journal entry damaged", {{"id", e->job.id()}});
    } else if (e->job.state() == glyd::v1::JOB_STATE_RUNNING) {
      why = WithReason(absl::AbortedError("the daemon ended while the job ran; submit it again"),
                       "INTERRUPTED");
      // Before any other job runs, which may write the same output.
      if (e->job.spec().has_pack() && Check(e->job.spec(), e.get()).ok())
        runner_.Post([this, e] { RemoveLeftovers(*e); });
    } else if (e->job.state() == glyd::v1::JOB_STATE_QUEUED) {
      why = Check(e->job.spec(), e.get());
      if (why.ok()) queued_.push_back(e);
    }
    if (!why.ok()) {
      // As one that never ran here: End does not count it among the running.
      e->job.set_state(glyd::v1::JOB_STATE_QUEUED);
      End(e, glyd::v1::JOB_STATE_FAILED, why, "");
    }
  }
  runner_.Post([this] { StartSome(); });
  return absl::OkStatus();
}

void Jobs::Submit(const glyd::v1::SubmitJobRequest& r, uint32_t uid, Submitted submitted) {
  bool is_new = false;
  const absl::StatusOr<EntryPtr> e = Enqueue(r, uid, &is_new);
  if (!e.ok()) return submitted(e.status());
  // Also for a job that is there: its first submission may still be on its way to the disk.
  const bool posted = journaler_.Post([this, e = *e, is_new, submitted] {
    Job job;
    {
      absl::MutexLock lock(&mu_);
      job = e->job;
    }
    if (is_new) {
      if (const absl::Status s = journal_->Put(e->number, job); !s.ok()) {
        absl::MutexLock lock(&mu_);
        std::erase(queued_, e);
        by_request_.erase(job.request_id());
        jobs_.erase(e->number);
        return submitted(WithReason(s, "JOURNAL"));
      }
      runner_.Post([this] { StartSome(); });
    }
    submitted(job);
  });
  if (!posted) submitted(StoppingError());
}

absl::StatusOr<Jobs::EntryPtr> Jobs::Enqueue(const glyd::v1::SubmitJobRequest& r, uint32_t uid,
                                             bool* is_new) {
  if (r.request_id().size() > 128)
    return BadSpec(absl::StrCat("a request id of ", r.request_id().size(), " bytes, at most 128"));
  absl::MutexLock lock(&mu_);
  const auto same = by_request_.find(r.request_id());
  if (!r.request_id().empty() && same != by_request_.end()) return jobs_[same->second];
  if (stopping_ || draining_) return StoppingError();
  auto e = std::make_shared<Entry>();
  GLYD_RETURN_IF_ERROR(Check(r.spec(), e.get()));
  if (queued_.size() >= options_.queue)
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(queued_.size(), " jobs wait, at most ",
                                                  options_.queue, " may: try again later")),
        "QUEUE_FULL");
  e->number = next_++;
  Job& j = e->job;
  j.set_id(absl::StrCat(e->number));
  j.set_request_id(r.request_id());
  *j.mutable_spec() = r.spec();
  j.set_state(glyd::v1::JOB_STATE_QUEUED);
  j.set_uid(uid);
  *j.mutable_created_at() = ToProto(absl::Now());
  jobs_[e->number] = e;
  if (!r.request_id().empty()) by_request_[r.request_id()] = e->number;
  queued_.push_back(e);
  Changed(e);
  ForgetSome();
  *is_new = true;
  return e;
}

// The oldest of the ended ones go, past what is remembered.
void Jobs::ForgetSome() {
  size_t ended =
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return Ended(j.second->job); });
  for (auto it = jobs_.begin(); ended > options_.remembered && it != jobs_.end();) {
    if (!Ended(it->second->job)) {
      ++it;
      continue;
    }
    by_request_.erase(it->second->job.request_id());
    journaler_.Post([this, number = it->first] { (void)journal_->Forget(number); });
    it = jobs_.erase(it);
    --ended;
  }
}

void Jobs::Persist(const EntryPtr& e) {
  journaler_.Post([this, number = e->number, job = e->job] {
    const absl::Status s = journal_->Put(number, job);
    if (!s.ok()) Log(LogLevel::kError, "journal", {{"error", s.message()}});
  });
}

Jobs::EntryPtr Jobs::TakeNext() {
  std::map<uint32_t, int> running;
  for (const auto& [number, e] : jobs_)
    if (e->job.state() == glyd::v1::JOB_STATE_RUNNING) ++running[e->job.uid()];
  const auto next =
      std::min_element(queued_.begin(), queued_.end(), [&](const EntryPtr& a, const EntryPtr& b) {
        return running[a->job.uid()] < running[b->job.uid()];
      });
  EntryPtr e = *next;
  queued_.erase(next);
  return e;
}

void Jobs::StartSome() {
  for (;;) {
    EntryPtr e;
    {
      absl::MutexLock lock(&mu_);
      if (stopping_ || queued_.empty() || running_ >= options_.at_once) return;
      e = TakeNext();
      ++running_;
      e->job.set_state(glyd::v1::JOB_STATE_RUNNING);
      *e->job.mutable_started_at() = ToProto(absl::Now());
      e->phase_started = absl::Now();
      Changed(e);
      Persist(e);
    }
    Log(LogLevel::kInfo, "job started", {{"id", e->job.id()}});
    e->job.spec().has_load() ? RunLoad(e) : Run(e);
  }
}

absl::StatusOr<std::shared_ptr<Child>> Jobs::StartWorker(const Entry& e) const {
  std::vector<std::string> arguments = {"job"};
  for (const RootConfig& root : roots_->configs()) {
    if (root.name == e.source.root) arguments.insert(arguments.end(), {"--read", root.directory});
    if (root.name == e.output.root) arguments.insert(arguments.end(), {"--write", root.directory});
  }
  auto child = Child::Spawn(options_.worker, arguments, [](const std::string&) {});
  if (child.ok()) return *std::move(child);
  // Where the program lies is the operator's to know.
  Log(LogLevel::kError, "job worker does not start", {{"error", child.status().message()}});
  return WithReason(
      absl::UnavailableError("the job's worker does not start; the daemon's log says why"),
      "WORKER_LOST");
}

ToWorker Jobs::RunMessage(const Entry& e, int threads) {
  ToWorker m;
  worker::v1::RunJob& run = *m.mutable_run_job();
  *run.mutable_spec() = e.job.spec();
  run.set_source_root(e.source.root);
  run.set_source_relative(e.source.relative);
  run.set_output_root(e.output.root);
  run.set_output_relative(e.output.relative);
  run.set_threads(threads);
  return m;
}

void Jobs::Run(const EntryPtr& e) {
  auto child = StartWorker(*e);
  if (!child.ok()) {
    absl::MutexLock lock(&mu_);
    return End(e, glyd::v1::JOB_STATE_FAILED, child.status(), "");
  }
  std::vector<SharedFd> fds = {e->source.fd};
  if (e->output.fd != nullptr) fds.push_back(e->output.fd);
  ToWorker m;
  {
    absl::MutexLock lock(&mu_);
    e->child = *child;
    m = RunMessage(*e, options_.threads);
  }
  // Not under the lock: a worker that is gone already is told of at once.
  const uint64_t call = (*child)->Call(
      std::move(m), std::move(fds),
      [this, e](const FromWorker& answer, std::vector<UniqueFd>) { OnWorker(e, answer); });
  absl::MutexLock lock(&mu_);
  e->call = call;
  if (e->cancelled) SendCancel(*e);
}

// Of a pack whose worker was killed. Waits, for some seconds at most: for the runner's thread.
void Jobs::RemoveLeftovers(const Entry& e) const {
  const auto child = StartWorker(e);
  if (!child.ok()) return;
  ToWorker m;
  {
    absl::MutexLock lock(&mu_);
    m = RunMessage(e, 1);
  }
  m.mutable_run_job()->set_remove_leftovers(true);
  struct Outcome {
    absl::Notification told;
    absl::Status status;
  };
  const auto outcome = std::make_shared<Outcome>();
  (*child)->Call(std::move(m), {e.source.fd, e.output.fd},
                 [outcome](const FromWorker& answer, std::vector<UniqueFd>) {
                   if (answer.has_error()) outcome->status = ToStatus(answer.error());
                   if (answer.has_error() || answer.has_done()) outcome->told.Notify();
                 });
  const bool told = outcome->told.WaitForNotificationWithTimeout(absl::Seconds(10));
  (*child)->End();
  if (!told || !outcome->status.ok())
    Log(LogLevel::kWarning, "what an ended job left was not removed",
        {{"id", e.job.id()}, {"error", told ? outcome->status.message() : "no answer for 10 s"}});
}

void Jobs::SendCancel(Entry& e) {
  ToWorker m;
  m.mutable_cancel();
  // Before the call's number is known Run does it.
  if (e.child != nullptr && e.call != 0) e.child->Send(e.call, std::move(m));
}

void Jobs::OnWorker(const EntryPtr& e, const FromWorker& m) {
  absl::MutexLock lock(&mu_);
  Job& j = e->job;
  if (Ended(j)) return;
  if (m.has_progress()) {
    glyd::v1::JobProgress& p = *j.mutable_progress();
    if (p.phase() != m.progress().phase()) e->phase_started = absl::Now();
    p.set_phase(m.progress().phase());
    p.set_item(m.progress().item());
    p.set_bytes_done(m.progress().bytes_done());
    p.set_bytes_total(m.progress().bytes_total());
    const double seconds = absl::ToDoubleSeconds(absl::Now() - e->phase_started);
    p.set_bytes_per_second(seconds > 0 ? static_cast<double>(p.bytes_done()) / seconds : 0);
    for (const std::string& note : m.progress().notes())
      if (j.notes_size() < 100) j.add_notes(note.substr(0, 1000));
    Changed(e);
  } else if (m.has_done()) {
    End(e, glyd::v1::JOB_STATE_SUCCEEDED, absl::OkStatus(), m.done().result_json());
  } else if (m.has_error() && m.error().reason() == "WORKER_LOST" && j.spec().has_pack()) {
    // It had no time to tidy up; when the job's end is told nothing of it is left.
    runner_.Post([this, e, child = e->child, why = ToStatus(m.error())] {
      child->End();
      RemoveLeftovers(*e);
      absl::MutexLock lock(&mu_);
      End(e, e->cancelled ? glyd::v1::JOB_STATE_CANCELLED : glyd::v1::JOB_STATE_FAILED, why, "");
    });
  } else if (m.has_error()) {
    End(e, e->cancelled ? glyd::v1::JOB_STATE_CANCELLED : glyd::v1::JOB_STATE_FAILED,
        ToStatus(m.error()), "");
  }
}

void Jobs::RunLoad(const EntryPtr& e) {
  const glyd::v1::LoadSpec& spec = e->job.spec().load();
  glyd::v1::LoadRequest r;
  r.set_name(spec.name());
  r.set_path(spec.path());
  r.set_device(spec.device());
  r.set_pin(spec.pin());
  r.set_verify(spec.verify());
  const auto started = models_->Load(r, [this, e](const glyd::v1::Model& m) {
    absl::MutexLock lock(&mu_);
    if (m.state() == glyd::v1::MODEL_STATE_READY)
      End(e, glyd::v1::JOB_STATE_SUCCEEDED, absl::OkStatus(),
          nlohmann::json{
              {"name", m.name()}, {"allocation_bytes", m.allocation_bytes()}, {"packs", m.packs()}}
              .dump());
    else
      End(e, e->cancelled ? glyd::v1::JOB_STATE_CANCELLED : glyd::v1::JOB_STATE_FAILED,
          WithReason(absl::FailedPreconditionError(m.error()), "LOAD_FAILED"), "");
  });
  absl::MutexLock lock(&mu_);
  if (!started.ok()) End(e, glyd::v1::JOB_STATE_FAILED, started.status(), "");
}

void Jobs::End(const EntryPtr& e, glyd::v1::JobState state, const absl::Status& why,
               const std::string& result) {
  Job& j = e->job;
  if (Ended(j)) return;
  if (j.state() == glyd::v1::JOB_STATE_RUNNING) --running_;
  j.set_state(state);
  j.set_error(std::string(why.message()));
  if (!why.ok()) {
    const std::string reason = ReasonOf(why);
    j.set_error_reason(!reason.empty() ? reason : absl::StatusCodeToString(why.code()));
  }
  j.set_result_json(result);
  *j.mutable_ended_at() = ToProto(absl::Now());
  Log(why.ok() ? LogLevel::kInfo : LogLevel::kWarning, "job ended",
      {{"id", j.id()}, {"state", JobState_Name(state)}, {"error", why.message()}});
  Changed(e);
  Persist(e);
  runner_.Post([this, child = std::move(e->child)] {
    if (child != nullptr) child->End();
    StartSome();
  });
}

void Jobs::Changed(const EntryPtr& e) {
  e->job.set_sequence(++sequence_);
  teller_.Post([e, job = e->job] {
    e->watchers.Push(job, Ended(job) ? "" : "progress");
    if (Ended(job)) e->watchers.End(absl::OkStatus());
  });
}

absl::StatusOr<Jobs::EntryPtr> Jobs::Find(const std::string& id) const {
  uint64_t number;
  const auto it = absl::SimpleAtoi(id, &number) ? jobs_.find(number) : jobs_.end();
  if (it == jobs_.end())
    return WithReason(absl::NotFoundError(absl::StrCat("no job \"", Printable(id), "\"")),
                      "NO_JOB");
  return it->second;
}

absl::StatusOr<Job> Jobs::Get(const std::string& id) const {
  absl::MutexLock lock(&mu_);
  GLYD_ASSIGN_OR_RETURN(const EntryPtr e, Find(id));
  return e->job;
}

std::vector<Job> Jobs::List(const std::vector<glyd::v1::JobState>& states) const {
  std::vector<Job> out;
  absl::MutexLock lock(&mu_);
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it)
    if (states.empty() ||
        std::find(states.begin(), states.end(), it->second->job.state()) != states.end())
      out.push_back(it->second->job);
  return out;
}

absl::StatusOr<Job> Jobs::Cancel(const std::string& id) {
  std::string load;
  Job out;
  {
    absl::MutexLock lock(&mu_);
    GLYD_ASSIGN_OR_RETURN(const EntryPtr e, Find(id));
    if (!Ended(e->job)) {
      e->cancelled = true;
      if (e->job.state() == glyd::v1::JOB_STATE_QUEUED) {
        std::erase(queued_, e);
        End(e, glyd::v1::JOB_STATE_CANCELLED,
            WithReason(absl::CancelledError("cancelled"), "CANCELLED"), "");
      } else if (e->child != nullptr) {
        SendCancel(*e);
      } else if (e->job.spec().has_load()) {
        load = e->job.spec().load().name();
      }
    }
    out = e->job;
  }
  // Its end comes by the load's own callback.
  if (!load.empty()) (void)models_->Unload(load, /*drain=*/false);
  return out;
}

absl::Status Jobs::Watch(const std::string& id, uint64_t after,
                         const std::shared_ptr<Sink<Job>>& sink) {
  absl::MutexLock lock(&mu_);
  GLYD_ASSIGN_OR_RETURN(const EntryPtr e, Find(id));
  teller_.Post([e, after, sink, job = e->job] {
    // Progress is not in the journal: after a restart the end may have a smaller number than a
    // watcher saw.
    if (job.sequence() > after || Ended(job)) sink->Push(job, "");
    if (Ended(job))
      sink->End(absl::OkStatus());
    else
      e->watchers.Add(sink);
  });
  return absl::OkStatus();
}

void Jobs::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

void Jobs::Stop() {
  std::vector<std::shared_ptr<Child>> children;
  std::vector<EntryPtr> slow;  // whose workers had to be killed
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
    stopping_ = true;
    const absl::Status why = WithReason(absl::CancelledError("the daemon was stopped"), "STOPPING");
    for (auto& [number, e] : jobs_) {
      if (Ended(e->job)) continue;
      if (e->child != nullptr) {
        e->cancelled = true;
        SendCancel(*e);
        children.push_back(e->child);
      }
    }
    // Workers answer the cancel once their temporary files are removed.
    const auto idle = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::none_of(jobs_.begin(), jobs_.end(), [](const auto& j) {
        return j.second->child != nullptr && !Ended(j.second->job);
      });
    };
    mu_.AwaitWithTimeout(absl::Condition(&idle), absl::Seconds(2));
    // QUEUED ones stay so: the next daemon runs them.
    for (auto& [number, e] : jobs_)
      if (e->job.state() == glyd::v1::JOB_STATE_RUNNING) {
        if (e->job.spec().has_pack()) slow.push_back(e);
        End(e, glyd::v1::JOB_STATE_CANCELLED, why, "");
      }
  }
  for (const auto& child : children) child->End();
  for (const EntryPtr& e : slow) RemoveLeftovers(*e);
  runner_.Stop();
  journaler_.Stop();
  teller_.Post([this] {
    absl::MutexLock lock(&mu_);
    for (auto& [number, e] : jobs_) e->watchers.End(StoppingError());
  });
  teller_.Stop();
}

}  // namespace glyd
