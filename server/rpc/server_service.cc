#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/version.h"
#include "glyd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/core/errors.h"
#include "server/rpc/push_stream.h"
#include "server/rpc/services.h"

namespace glyd {

absl::StatusOr<Session> Daemon::SessionOf(const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("glyd-session");
  return sessions->Find(
      it == metadata.end() ? "" : absl::string_view(it->second.data(), it->second.size()));
}

namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kModelPrefix[] = "glyd.model.";

}  // namespace

class HealthState : public Sink<glyd::v1::ModelEvent> {
 public:
  explicit HealthState(Daemon* d) : d_(d) {}

  HealthCheckResponse::ServingStatus Of(const std::string& service) const {
    if (service == "liveness") return HealthCheckResponse::SERVING;
    if (service.empty() || service == "readiness") {
      bool up = !stopped_;
      for (const ServedDevice* dev : d_->devices) up &= dev->slot->state().pid != 0;
      return up ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    }
    if (service.rfind(kModelPrefix, 0) == 0) {
      const auto m = d_->models->Get(service.substr(sizeof kModelPrefix - 1));
      if (m.ok())
        return m->state() == glyd::v1::MODEL_STATE_READY && !stopped_
                   ? HealthCheckResponse::SERVING
                   : HealthCheckResponse::NOT_SERVING;
    }
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }

  void Watch(const std::string& service, const std::shared_ptr<Sink<HealthCheckResponse>>& sink) {
    absl::MutexLock lock(&mu_);
    std::erase_if(watches_, [](const auto& w) { return w.sink.expired(); });
    HealthCheckResponse r;
    r.set_status(Of(service));
    watches_.push_back({service, r.status(), sink});
    sink->Push(r, "");
  }

  // What a watcher has not been told is told now.
  void Refresh() {
    // Under the lock: of two that refresh at once the later one must have the last word.
    absl::MutexLock lock(&mu_);
    for (Watching& w : watches_) {
      HealthCheckResponse r;
      r.set_status(Of(w.service));
      if (r.status() == w.told) continue;
      w.told = r.status();
      if (const auto sink = w.sink.lock()) sink->Push(r, "");
    }
  }

  void Drain() {
    stopped_ = true;
    Refresh();
  }

  void Stop() {
    Drain();
    absl::MutexLock lock(&mu_);
    for (Watching& w : watches_)
      if (const auto sink = w.sink.lock()) ending_.Post([sink] { sink->End(StoppingError()); });
  }
  bool stopped() const { return stopped_; }

  // A change of any model may change its own service.
  void Push(glyd::v1::ModelEvent, const std::string&) override { Refresh(); }
  void End(absl::Status) override {}

 private:
  struct Watching {
    std::string service;
    HealthCheckResponse::ServingStatus told;
    std::weak_ptr<Sink<HealthCheckResponse>> sink;
  };

  Daemon* const d_;
  std::atomic<bool> stopped_ = false;
  absl::Mutex mu_;
  std::vector<Watching> watches_ ABSL_GUARDED_BY(mu_);
  TaskThread ending_;
};

namespace {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(std::shared_ptr<HealthState> state) : state_(std::move(state)) {}

  ServerUnaryReactor* Check(CallbackServerContext* c, const HealthCheckRequest* r,
                            HealthCheckResponse* reply) override {
    reply->set_status(state_->Of(r->service()));
    ServerUnaryReactor* reactor = c->DefaultReactor();
    reactor->Finish(reply->status() == HealthCheckResponse::SERVICE_UNKNOWN
                        ? grpc::Status(grpc::StatusCode::NOT_FOUND,
                                       absl::StrCat("no health service \"", Printable(r->service()),
                                                    "\": there are \"\", liveness, readiness and "
                                                    "glyd.model.NAME for each model"))
                        : grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<HealthCheckResponse>* Watch(CallbackServerContext*,
                                                       const HealthCheckRequest* r) override {
    auto* stream = new PushStream<HealthCheckResponse>();
    state_->Watch(r->service(), stream->sink());
    return stream;
  }

 private:
  const std::shared_ptr<HealthState> state_;
};

class ServerService final : public glyd::v1::Server::CallbackService {
 public:
  ServerService(Daemon* d, std::shared_ptr<HealthState> health)
      : d_(d), health_(std::move(health)) {}

  ServerUnaryReactor* Info(CallbackServerContext* c, const glyd::v1::InfoRequest*,
                           glyd::v1::InfoReply* r) override {
    r->set_version(kVersion);
    r->set_pid(::getpid());
    r->set_generation(d_->models->generation());
    r->mutable_started_at()->set_seconds(absl::ToUnixSeconds(d_->started));
    r->set_sessions(d_->sessions->count());
    r->set_leases(d_->models->lease_count());
    r->set_draining(health_->stopped());
    r->set_linear_threads(d_->config->threads);
    for (const RootConfig& root : d_->roots->configs()) {
      glyd::v1::Root& out = *r->add_roots();
      out.set_name(root.name);
      out.set_writable(root.writable);
      out.set_directory(root.directory);
    }
    for (const ServedDevice* dev : d_->devices) {
      const DeviceSlot::State s = dev->slot->state();
      glyd::v1::DeviceState& out = *r->add_devices();
      out.set_name(dev->slot->name());
      out.set_kind(s.facts.kind());
      out.set_model(s.facts.model());
      out.set_uuid(s.facts.uuid());
      out.set_total_bytes(s.facts.total_bytes());
      out.set_budget_bytes(dev->budget.limit());
      out.set_used_bytes(dev->budget.used());
      out.set_transport(glyd::v1::TRANSPORT_FD);
      out.set_worker_pid(s.pid);
      out.set_worker_restarts(s.restarts);
      out.set_error(s.error);
      out.set_worker_sandbox(s.facts.sandbox());
      for (const std::string& t : s.facts.linear_targets()) out.add_linear_targets(t);
    }
    return FinishUnary(c, absl::OkStatus());
  }

  ServerUnaryReactor* Drain(CallbackServerContext* c, const glyd::v1::DrainRequest* r,
                            glyd::v1::DrainReply* reply) override {
    health_->Drain();
    d_->jobs->Drain();
    d_->models->Drain(r->exit() ? d_->exit : nullptr);
    reply->set_leases(d_->models->lease_count());
    return FinishUnary(c, absl::OkStatus());
  }

 private:
  Daemon* const d_;
  const std::shared_ptr<HealthState> health_;
};

}  // namespace

std::shared_ptr<HealthState> NewHealthState(Daemon* daemon) {
  auto state = std::make_shared<HealthState>(daemon);
  daemon->models->Watch(state);
  return state;
}

void RefreshHealth(HealthState& health) { health.Refresh(); }

void StopHealth(HealthState& health) { health.Stop(); }

std::unique_ptr<grpc::Service> NewServerService(Daemon* daemon,
                                                std::shared_ptr<HealthState> health) {
  return std::make_unique<ServerService>(daemon, std::move(health));
}

std::unique_ptr<grpc::Service> NewHealthService(std::shared_ptr<HealthState> health) {
  return std::make_unique<HealthService>(std::move(health));
}

}  // namespace glyd
