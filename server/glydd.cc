#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "server/broker/broker.h"
#include "server/core/lock_file.h"
#include "server/core/log.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/tls_listener.h"

extern char** environ;

namespace glyd {
namespace {

// docs/operating.md lists them.
enum ExitCode {
  kStopped = 0,
  kDeviceLost = 70,
  kLockHeld = 75,
  kBadConfig = 78,
  kSecondTerm = 143
};

// `last_mode` is that of the directory itself, where it is made here; those above it are 0700.
absl::Status MakeDirectory(const std::string& path, mode_t last_mode) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const mode_t old = ::umask(0077);
  std::filesystem::create_directories(path, error);
  ::umask(old);
  if (error) return ErrnoStatus(error.value(), path);
  return ::chmod(path.c_str(), last_mode) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path);
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// A socket at `path`, ours to bind: the lock beside it is held, so what is there is a dead
// daemon's.
absl::StatusOr<UniqueFd> Bind(const std::string& path, bool open_to_others) {
  struct stat st;
  if (::lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode))
      return absl::FailedPreconditionError(absl::StrCat(path, " is there and is no socket"));
    // Whoever tidies up temporary files may have taken a living daemon's lock away.
    const auto living = ConnectUnix(path);
    if (living.ok()) {
      const auto peer = GetPeerCredentials(living->get());
      return absl::AlreadyExistsError(absl::StrCat(
          path, " is served by pid ", peer.ok() ? peer->pid : 0, ", whose lock file is gone"));
    }
    ::unlink(path.c_str());
  }
  GLYD_ASSIGN_OR_RETURN(UniqueFd s, ListenUnix(path, 1024));
  // Others that the operator listed are told apart by their credentials, not by the socket's mode.
  if (open_to_others && ::chmod(path.c_str(), 0666) != 0) return ErrnoStatus(errno, path);
  return s;
}

// The listening socket that systemd made for us under this name (FileDescriptorName=), or none.
UniqueFd Activated(const std::string& name) {
  static char** names = nullptr;
  static const int count = ::sd_listen_fds_with_names(/*unset_environment=*/0, &names);
  for (int i = 0; i < count; ++i)
    if (name == names[i]) return UniqueFd(SD_LISTEN_FDS_START + i);
  return UniqueFd();
}

// Ends the process should the orderly way hang: gRPC waits for ever for a call that was never
// finished.
class Watchdog {
 public:
  void Start(absl::Duration grace) {
    thread_ = std::thread([this, grace] {
      if (done_.WaitForNotificationWithTimeout(grace)) return;
      std::fprintf(stderr, "glydd: the stop did not end in time; leaving\n");
      ::_exit(kStopped);
    });
  }
  ~Watchdog() {
    done_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  absl::Notification done_;
  std::thread thread_;
};

// Shells and service managers give 1024, which a few hundred clients take: the hard limit is the
// operator's.
void RaiseFileLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What a start would find missing: roots, those that preloads name, the worker.
absl::Status CheckPlaces(const Config& config) {
  GLYD_ASSIGN_OR_RETURN(const Roots roots, Roots::Open(config.roots));
  for (const PreloadConfig& p : config.preload)
    if (const absl::Status s = roots.Resolve(p.path, /*to_write=*/false).status(); !s.ok())
      return absl::InvalidArgumentError(absl::StrCat("preload ", p.name, ": ", s.message()));
  if (::access(config.worker.c_str(), X_OK) != 0)
    return ErrnoStatus(errno, absl::StrCat("worker ", config.worker));
  return absl::OkStatus();
}

class Glydd {
 public:
  explicit Glydd(Config config)
      : config_(std::move(config)),
        sessions_(config_.max_clients),
        cap_(config_.max_connections, std::max(1, config_.max_connections / 4)) {
    if (config_.threads == 0) config_.threads = AvailableCpus();
  }
  // Whatever a failed start leaves running has to end before what it speaks to.
  ~Glydd() {
    listener_.reset();
    acceptor_.reset();
    server_.reset();
    broker_.reset();
    if (jobs_ != nullptr) jobs_->Stop();
    for (const auto& d : devices_) d->slot->Stop();
  }

  // Serves until SIGTERM; `signals` are blocked in every thread. The exit code.
  int Run(const sigset_t& signals);

 private:
  int Fail(int code, const absl::Status& s) {
    Log(LogLevel::kError, "cannot start", {{"error", s.message()}});
    return code;
  }
  absl::Status StartDevices();
  absl::Status StartServers();
  void Preload();
  // The signal that ends the daemon.
  int WaitForEnd(const sigset_t& signals);
  void Stop();

  Config config_;
  Roots roots_;
  Sessions sessions_;
  ConnectionCap cap_;
  std::vector<std::unique_ptr<ServedDevice>> devices_;
  std::unique_ptr<Models> models_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<Jobs> jobs_;
  Daemon daemon_;
  std::shared_ptr<HealthState> health_;
  std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<TlsListener> listener_;
  std::unique_ptr<Broker> broker_;
  bool own_sockets_ = true;               // not systemd's
  UniqueFd grpc_socket_, broker_socket_;  // until they are served
};

absl::Status Glydd::StartDevices() {
  std::vector<ServedDevice*> served;
  for (const std::string& name : config_.devices) {
    auto d = std::make_unique<ServedDevice>();
    DeviceSlot::Options o;
    o.device = name;
    o.program = config_.worker;
    o.budget = config_.budget;
    o.threads = config_.threads;
    for (const RootConfig& root : config_.roots) o.read.push_back(root.directory);
    o.on_change = [this] {
      if (health_ != nullptr) RefreshHealth(*health_);
    };
    d->slot = std::make_unique<DeviceSlot>(std::move(o));
    served.push_back(d.get());
    devices_.push_back(std::move(d));
  }
  const uint64_t generation = RandomNumber() | 1;  // never 0
  models_ = std::make_unique<Models>(served, &roots_, generation);
  arenas_ = std::make_unique<Arenas>(served, generation);
  Jobs::Options jobs;
  jobs.worker = config_.worker;
  jobs.at_once = config_.jobs;
  jobs.queue = config_.queue;
  std::vector<std::string> notes;
  GLYD_ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal,
                        Journal::Open(config_.state + "/jobs.db", &notes));
  for (const std::string& note : notes) Log(LogLevel::kError, note);
  jobs_ = std::make_unique<Jobs>(jobs, std::move(journal), models_.get(), &roots_);
  daemon_.config = &config_;
  daemon_.roots = &roots_;
  daemon_.devices = served;
  daemon_.sessions = &sessions_;
  daemon_.models = models_.get();
  daemon_.arenas = arenas_.get();
  daemon_.jobs = jobs_.get();
  daemon_.started = absl::Now();
  daemon_.exit = [] { ::kill(::getpid(), SIGTERM); };
  for (ServedDevice* d : served) {
    GLYD_RETURN_IF_ERROR(d->slot->Start([this, d] {
      std::vector<DeviceSlot::Told> told = models_->Restore(d);
      for (DeviceSlot::Told& t : arenas_->Restore(d)) told.push_back(std::move(t));
      return told;
    }));
    d->budget.set_limit(d->slot->budget_bytes());
  }
  return jobs_->Recover();
}

absl::Status Glydd::StartServers() {
  const AllowedPeers allowed{config_.allow_uids, config_.allow_gids};
  const bool others = !allowed.uids.empty() || !allowed.gids.empty();
  if (own_sockets_) {
    GLYD_ASSIGN_OR_RETURN(grpc_socket_, Bind(config_.socket, others));
    GLYD_ASSIGN_OR_RETURN(broker_socket_, Bind(config_.broker_socket(), others));
  }
  health_ = NewHealthState(&daemon_);
  metrics_ = NewMetrics(&daemon_);
  GLYD_ASSIGN_OR_RETURN(
      server_, GrpcServer::Start(&daemon_, health_, metrics_, grpc::InsecureServerCredentials()));
  Broker::Options o;
  o.allowed = allowed;
  o.version = kVersion;
  o.boot_id = BootId();
  o.on_end = [this](uint64_t session) {
    models_->EndSession(session);
    arenas_->EndSession(session);
  };
  broker_ = std::make_unique<Broker>(std::move(broker_socket_), std::move(o), &sessions_,
                                     models_.get(), arenas_.get());
  acceptor_ = std::make_unique<Acceptor>(std::move(grpc_socket_), [this, allowed](UniqueFd s) {
    const auto peer = GetPeerCredentials(s.get());
    if (!peer.ok() || !allowed.Allows(peer->uid, peer->gid, peer->pid)) return;
    const int64_t who = peer->pid != 0 ? peer->pid : -1 - int64_t{peer->uid};
    if (cap_.Admit(s, who)) return server_->Take(std::move(s));
    Log(LogLevel::kWarning, "connection refused: too many",
        {{"pid", peer->pid}, {"uid", peer->uid}});
  });
  if (!config_.listen.empty()) {
    const TlsFiles files{config_.tls_cert, config_.tls_key, config_.tls_client_ca};
    GLYD_ASSIGN_OR_RETURN(
        listener_, TlsListener::Start(config_.listen, files, &daemon_, health_, metrics_, &cap_));
  }
  return config_.metrics.empty() ? absl::OkStatus() : metrics_->Serve(config_.metrics);
}

void Glydd::Preload() {
  for (const PreloadConfig& p : config_.preload) {
    glyd::v1::LoadRequest r;
    r.set_name(p.name);
    r.set_path(p.path);
    r.set_pin(p.pin);
    const auto m = models_->Load(r);
    if (!m.ok())
      Log(LogLevel::kError, "preload failed", {{"name", p.name}, {"error", m.status().message()}});
  }
}

void Glydd::Stop() {
  StopHealth(*health_);
  models_->Stop();
  if (listener_ != nullptr) listener_->Stop();
  acceptor_->Stop();
  jobs_->Stop();
  // Both at once: their grace is one.
  std::thread remote([this] {
    if (listener_ != nullptr) listener_->Shutdown(config_.drain_timeout);
  });
  server_->Shutdown(config_.drain_timeout);
  remote.join();
  broker_.reset();
  for (const auto& d : devices_) d->slot->Stop();
  metrics_.reset();
  listener_.reset();
  server_.reset();
  jobs_.reset();
  arenas_.reset();
  models_.reset();
  if (!own_sockets_) return;
  ::unlink(config_.socket.c_str());
  ::unlink(config_.broker_socket().c_str());
}

int Glydd::WaitForEnd(const sigset_t& signals) {
  uint64_t watchdog_us = 0;
  const bool watched = ::sd_watchdog_enabled(/*unset_environment=*/0, &watchdog_us) > 0;
  // Where systemd watches, twice in its time; certificates are looked at every few seconds.
  absl::Duration pause = watched ? absl::Microseconds(watchdog_us) / 2 : absl::Hours(1);
  if (listener_ != nullptr) pause = std::min(pause, absl::Seconds(2));
  for (;;) {
    const timespec wait = absl::ToTimespec(pause);
    const int signal = ::sigtimedwait(&signals, nullptr, &wait);
    if (signal == SIGTERM || signal == SIGINT) return signal;
    if (watched) ::sd_notify(0, "WATCHDOG=1");
    if (listener_ != nullptr) listener_->LookAgain();
    if (signal == SIGHUP) Log(LogLevel::kInfo, "SIGHUP: certificates looked at again");
  }
}

int Glydd::Run(const sigset_t& signals) {
  // Others that the operator listed have to pass through to the sockets.
  const bool others = !config_.allow_uids.empty() || !config_.allow_gids.empty();
  grpc_socket_ = Activated("grpc"), broker_socket_ = Activated("broker");
  own_sockets_ = !grpc_socket_ || !broker_socket_;
  std::vector<std::string> wanted;
  if (own_sockets_) {
    if (absl::Status s = MakeDirectory(ParentOf(config_.socket), others ? 0711 : 0700); !s.ok())
      return Fail(kBadConfig, s);
    // Of another socket's name in one directory, but one broker's.
    wanted = {config_.socket + ".lock", config_.broker_socket() + ".lock"};
  }  // Else their directory is the service manager's, and who has them.
  if (absl::Status s = MakeDirectory(config_.state, 0700); !s.ok()) return Fail(kBadConfig, s);
  wanted.push_back(config_.state + "/lock");
  std::vector<LockFile> locks;
  for (const std::string& path : wanted) {
    auto lock = LockFile::Acquire(path);
    if (!lock.ok())
      return Fail(absl::IsAlreadyExists(lock.status()) ? kLockHeld : kBadConfig, lock.status());
    locks.push_back(*std::move(lock));
  }
  if (absl::Status s = CheckPlaces(config_); !s.ok()) return Fail(kBadConfig, s);
  auto roots = Roots::Open(config_.roots);
  if (!roots.ok()) return Fail(kBadConfig, roots.status());
  roots_ = *std::move(roots);
  // A worker that starts and does not serve is a device lost; whatever else fails, the operator
  // set.
  if (absl::Status s = StartDevices(); !s.ok())
    return Fail(absl::IsUnavailable(s) ? kDeviceLost : kBadConfig, s);
  if (absl::Status s = StartServers(); !s.ok())
    return Fail(absl::IsAlreadyExists(s) ? kLockHeld : kBadConfig, s);
  Preload();
  Log(LogLevel::kInfo, "ready",
      {{"version", kVersion},
       {"socket", config_.socket},
       {"pid", ::getpid()},
       {"device", config_.devices.front()},
       {"budget", devices_.front()->budget.limit()}});
  ::sd_notify(0, "READY=1");

  const int signal = WaitForEnd(signals);
  Log(LogLevel::kInfo, "stopping", {{"signal", signal}});
  ::sd_notify(0, "STOPPING=1");
  // A second signal does not wait.
  std::thread([signals] {
    int again = 0;
    do {
      ::sigwait(&signals, &again);
    } while (again == SIGHUP);
    ::_exit(kSecondTerm);
  }).detach();
  Watchdog watchdog;
  watchdog.Start(config_.drain_timeout + absl::Seconds(10));
  Stop();
  Log(LogLevel::kInfo, "stopped");
  return kStopped;
}

}  // namespace
}  // namespace glyd

int main(int argc, char** argv) {
  glyd::ParsedConfig parsed = glyd::ParseConfig(argc, argv, environ);
  if (parsed.exit_code >= 0) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  if (parsed.config.check_only) {
    std::fputs(parsed.config.effective.c_str(), stdout);
    const absl::Status s = glyd::CheckPlaces(parsed.config);
    if (s.ok()) return 0;
    std::fprintf(stderr, "glydd: %s\n", std::string(s.message()).c_str());
    return glyd::kBadConfig;
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  // Blocked here and so in every thread; taken by sigwait.
  static sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  glyd::InitLog(parsed.config.log_json, parsed.config.log_level, "glydd");
  glyd::RaiseFileLimit();
  return glyd::Glydd(std::move(parsed.config)).Run(signals);
}
