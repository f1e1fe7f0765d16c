#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "base/reason.h"
#include "glyd/v1/jobs.grpc.pb.h"
#include "server/rpc/push_stream.h"
#include "server/rpc/services.h"

namespace glyd {
namespace {

using glyd::v1::Job;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class JobsService final : public glyd::v1::Jobs::CallbackService {
 public:
  explicit JobsService(Daemon* d) : d_(d) {}

  ServerUnaryReactor* Submit(CallbackServerContext* c, const glyd::v1::SubmitJobRequest* r,
                             Job* reply) override {
    // Without a session the submitter is somebody whom the socket let in.
    const auto session = d_->SessionOf(*c);
    ServerUnaryReactor* reactor = c->DefaultReactor();
    d_->jobs->Submit(*r, session.ok() ? session->uid : ::geteuid(),
                     [reactor, reply](absl::StatusOr<Job> job) {
                       if (job.ok()) *reply = *std::move(job);
                       reactor->Finish(ToGrpc(job.status()));
                     });
    return reactor;
  }
  ServerUnaryReactor* Get(CallbackServerContext* c, const glyd::v1::GetJobRequest* r,
                          Job* reply) override {
    return Answer(c, d_->jobs->Get(r->id()), reply);
  }
  ServerUnaryReactor* Cancel(CallbackServerContext* c, const glyd::v1::CancelJobRequest* r,
                             Job* reply) override {
    return Answer(c, d_->jobs->Cancel(r->id()), reply);
  }
  ServerUnaryReactor* List(CallbackServerContext* c, const glyd::v1::ListJobsRequest* r,
                           glyd::v1::ListJobsReply* reply) override {
    std::vector<glyd::v1::JobState> states;
    for (const int s : r->states()) states.push_back(static_cast<glyd::v1::JobState>(s));
    // A page stays well below gRPC's 4 MiB, however long the jobs' paths and notes are.
    uint64_t before = UINT64_MAX;
    if (!r->page_token().empty() && !absl::SimpleAtoi(r->page_token(), &before))
      return FinishUnary(
          c, WithReason(absl::InvalidArgumentError("page_token is not one that was given"),
                        "BAD_PAGE"));
    size_t bytes = 0;
    for (Job& j : d_->jobs->List(states)) {
      uint64_t number = 0;
      if (!absl::SimpleAtoi(j.id(), &number) || number >= before) continue;
      if (bytes > (size_t{1} << 20)) {
        reply->set_next_page_token(reply->jobs(reply->jobs_size() - 1).id());
        break;
      }
      bytes += j.ByteSizeLong();
      *reply->add_jobs() = std::move(j);
    }
    return FinishUnary(c, absl::OkStatus());
  }
  grpc::ServerWriteReactor<Job>* Watch(CallbackServerContext*,
                                       const glyd::v1::WatchJobRequest* r) override {
    auto* stream = new PushStream<Job>();
    const absl::Status s = d_->jobs->Watch(r->id(), r->after_sequence(), stream->sink());
    if (!s.ok()) stream->sink()->End(s);
    return stream;
  }

 private:
  static ServerUnaryReactor* Answer(CallbackServerContext* c, absl::StatusOr<Job> job, Job* reply) {
    if (job.ok()) *reply = *std::move(job);
    return FinishUnary(c, job.status());
  }

  Daemon* const d_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewJobsService(Daemon* daemon) {
  return std::make_unique<JobsService>(daemon);
}

}  // namespace glyd
