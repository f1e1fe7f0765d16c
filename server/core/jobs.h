#ifndef GLYD_SERVER_CORE_JOBS_H_
#define GLYD_SERVER_CORE_JOBS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "glyd/v1/jobs.pb.h"
#include "server/core/child.h"
#include "server/core/fanout.h"
#include "server/core/journal.h"
#include "server/core/models.h"
#include "server/core/roots.h"
#include "server/core/task_thread.h"

namespace glyd {

// Pack, verify and load jobs: a queue, `at_once` of them running, each pack and verify in a worker
// of its own. Of the users whose jobs wait, the one with the fewest running is next. What is told
// of a job is in the journal first: after a crash a QUEUED one runs, a RUNNING one is FAILED,
// reason INTERRUPTED. Thread-safe; no call blocks but Recover and Stop.
class Jobs {
 public:
  struct Options {
    std::string worker;  // glyd-worker
    int at_once = 1;
    size_t queue = 100;        // QUEUED jobs, at most
    size_t remembered = 1000;  // ended jobs, at most
    int threads = 0;           // of one job; 0: one a core
  };
  // `models` and `roots` outlive this.
  Jobs(Options options, std::unique_ptr<Journal> journal, Models* models, const Roots* roots);
  ~Jobs();

  // Takes up the jobs of daemons before this one; before any other call.
  absl::Status Recover();
  using Submitted = std::function<void(absl::StatusOr<glyd::v1::Job>)>;
  // The job of this request id, or a new one, once it is in the journal. ResourceExhausted, reason
  // QUEUE_FULL, with both numbers.
  void Submit(const glyd::v1::SubmitJobRequest& request, uint32_t uid, Submitted submitted);
  absl::StatusOr<glyd::v1::Job> Get(const std::string& id) const;
  std::vector<glyd::v1::Job> List(const std::vector<glyd::v1::JobState>& states) const;
  absl::StatusOr<glyd::v1::Job> Cancel(const std::string& id);
  // The sink hears the job as it is, if its sequence is past `after`, then each change, and its
  // end.
  absl::Status Watch(const std::string& id, uint64_t after,
                     const std::shared_ptr<Sink<glyd::v1::Job>>& sink);
  // No new jobs from now on.
  void Drain();
  // Cancels what runs and waits, and returns when no worker is left.
  void Stop();

 private:
  struct Entry {
    uint64_t number = 0;
    glyd::v1::Job job;
    RootedPath source, output;
    std::shared_ptr<Child> child;  // while a worker runs it
    uint64_t call = 0;
    bool cancelled = false;
    absl::Time phase_started;
    Fanout<glyd::v1::Job> watchers;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  absl::Status Check(const glyd::v1::JobSpec& spec, Entry* entry) const;
  absl::StatusOr<EntryPtr> Enqueue(const glyd::v1::SubmitJobRequest& request, uint32_t uid,
                                   bool* is_new);
  void Persist(const EntryPtr& e) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  EntryPtr TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartSome();
  absl::StatusOr<std::shared_ptr<Child>> StartWorker(const Entry& e) const;
  static worker::v1::ToWorker RunMessage(const Entry& e, int threads);
  void Run(const EntryPtr& e);
  void RemoveLeftovers(const Entry& e) const;
  void RunLoad(const EntryPtr& e);
  void SendCancel(Entry& e) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnWorker(const EntryPtr& e, const worker::v1::FromWorker& m);
  void End(const EntryPtr& e, glyd::v1::JobState state, const absl::Status& why,
           const std::string& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Changed(const EntryPtr& e) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<EntryPtr> Find(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Models* const models_;
  const Roots* const roots_;
  const std::unique_ptr<Journal> journal_;  // the journaler's thread's alone, once Recover is done

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false, draining_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t sequence_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, EntryPtr> jobs_ ABSL_GUARDED_BY(mu_);  // by number, oldest first
  std::map<std::string, uint64_t> by_request_ ABSL_GUARDED_BY(mu_);
  std::deque<EntryPtr> queued_ ABSL_GUARDED_BY(mu_);

  TaskThread runner_;     // starts and ends workers
  TaskThread journaler_;  // writes, in order
  TaskThread teller_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_JOBS_H_
