#include "server/rpc/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace glyd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Seconds: a call over a Unix socket takes some 100 us, a load minutes.
const prometheus::Histogram::BucketBoundaries kBuckets = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03,
                                                          0.1,    0.3,    1,     3,     10,   60};

// What is read off the daemon's state when it is asked for.
class StateMetrics : public prometheus::Collectable {
 public:
  explicit StateMetrics(Daemon* d) : d_(d) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> out;
    Add(&out, "glyd_build_info", "The version that runs.", MetricType::Gauge,
        {{{{"version", kVersion}}, 1}});
    Add(&out, "glyd_sessions", "Sessions of the broker.", MetricType::Gauge,
        {{{}, static_cast<double>(d_->sessions->count())}});
    Add(&out, "glyd_leases", "Leases held.", MetricType::Gauge,
        {{{}, static_cast<double>(d_->models->lease_count())}});
    Add(&out, "glyd_evictions_total", "Models evicted to make room.", MetricType::Counter,
        {{{}, static_cast<double>(d_->models->eviction_count())}});
    std::vector<Sample> used, budget, up, restarts, bytes;
    for (const ServedDevice* dev : d_->devices) {
      const Labels device = {{"device", dev->slot->name()}};
      const DeviceSlot::State s = dev->slot->state();
      used.push_back({device, static_cast<double>(dev->budget.used())});
      budget.push_back({device, static_cast<double>(dev->budget.limit())});
      up.push_back({device, s.pid != 0 ? 1.0 : 0.0});
      restarts.push_back({device, static_cast<double>(s.restarts)});
    }
    for (const glyd::v1::Model& m : d_->models->List())
      bytes.push_back({{{"model", m.name()}, {"device", m.device()}},
                       static_cast<double>(m.allocation_bytes())});
    Add(&out, "glyd_device_used_bytes", "Memory taken by models and arenas.", MetricType::Gauge,
        used);
    Add(&out, "glyd_device_budget_bytes", "Memory that they may take.", MetricType::Gauge, budget);
    Add(&out, "glyd_device_up", "1 while the device's worker serves.", MetricType::Gauge, up);
    Add(&out, "glyd_worker_restarts_total", "Times that the device's worker was started again.",
        MetricType::Counter, restarts);
    Add(&out, "glyd_model_bytes", "Memory of a model; names that share one block each tell it.",
        MetricType::Gauge, bytes);
    std::map<std::string, double> jobs;
    for (const glyd::v1::Job& j : d_->jobs->List({})) ++jobs[JobState_Name(j.state()).substr(10)];
    std::vector<Sample> by_state;
    for (const auto& [state, n] : jobs) by_state.push_back({{{"state", state}}, n});
    Add(&out, "glyd_jobs", "Jobs remembered, by state.", MetricType::Gauge, by_state);
    return out;
  }

 private:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  struct Sample {
    Labels labels;
    double value;
  };

  static void Add(std::vector<MetricFamily>* out, const char* name, const char* help,
                  MetricType type, const std::vector<Sample>& samples) {
    MetricFamily& f = out->emplace_back();
    f.name = name;
    f.help = help;
    f.type = type;
    for (const Sample& s : samples) {
      ClientMetric& m = f.metric.emplace_back();
      for (const auto& [key, value] : s.labels) m.label.push_back({key, value});
      (type == MetricType::Counter ? m.counter.value : m.gauge.value) = s.value;
    }
  }

  Daemon* const d_;
};

class PrometheusMetrics : public Metrics, public std::enable_shared_from_this<PrometheusMetrics> {
 public:
  explicit PrometheusMetrics(Daemon* d)
      : registry_(std::make_shared<prometheus::Registry>()),
        state_(std::make_shared<StateMetrics>(d)),
        requests_(prometheus::BuildCounter()
                      .Name("glyd_requests_total")
                      .Help("Calls that ended, by method and gRPC code.")
                      .Register(*registry_)),
        seconds_(prometheus::BuildHistogram()
                     .Name("glyd_request_duration_seconds")
                     .Help("How long calls took, by method.")
                     .Register(*registry_)) {}

  void Ended(const std::string& method, int code, absl::Duration took) {
    requests_.Add({{"method", method}, {"code", absl::StrCat(code)}}).Increment();
    seconds_.Add({{"method", method}}, kBuckets).Observe(absl::ToDoubleSeconds(took));
  }

  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewInterceptor() override;

  int64_t in_flight() const override { return in_flight_; }
  void Begins() { ++in_flight_; }
  void Ends() { --in_flight_; }

  absl::Status Serve(const std::string& address) override {
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
    } catch (const std::exception& e) {
      // It does not say why; binding does.
      GLYD_RETURN_IF_ERROR(ListenTcp(address, "metrics").status());
      return absl::InvalidArgumentError(absl::StrCat("metrics ", address, ": ", e.what()));
    }
    exposer_->RegisterCollectable(registry_);
    exposer_->RegisterCollectable(state_);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<StateMetrics> state_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::atomic<int64_t> in_flight_ = 0;
};

class CallTimer : public grpc::experimental::Interceptor {
 public:
  CallTimer(std::shared_ptr<PrometheusMetrics> metrics, std::string method)
      : metrics_(std::move(metrics)), method_(std::move(method)) {
    metrics_->Begins();
  }
  ~CallTimer() override { metrics_->Ends(); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS))
      metrics_->Ended(method_, methods->GetSendStatus().error_code(), absl::Now() - start_);
    methods->Proceed();
  }

 private:
  const std::shared_ptr<PrometheusMetrics> metrics_;
  const std::string method_;
  const absl::Time start_ = absl::Now();
};

class CallTimers : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallTimers(std::shared_ptr<PrometheusMetrics> metrics) : metrics_(std::move(metrics)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    // Methods that this server has: a stranger's names would be labels without end.
    return info->method() == nullptr ? nullptr : new CallTimer(metrics_, info->method());
  }

 private:
  const std::shared_ptr<PrometheusMetrics> metrics_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
PrometheusMetrics::NewInterceptor() {
  return std::make_unique<CallTimers>(shared_from_this());
}

}  // namespace

std::shared_ptr<Metrics> NewMetrics(Daemon* daemon) {
  return std::make_shared<PrometheusMetrics>(daemon);
}

}  // namespace glyd
