#include "server/rpc/tls_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "server/core/log.h"

namespace glyd {
namespace {

// Certificates that live for an hour and connections that never end would pile servers up.
constexpr size_t kMaxServers = 4;

}  // namespace

TlsListener::TlsListener(TlsFiles files, Daemon* daemon, std::shared_ptr<HealthState> health,
                         std::shared_ptr<Metrics> metrics)
    : files_(std::move(files)),
      daemon_(daemon),
      health_(std::move(health)),
      metrics_(std::move(metrics)) {}

absl::StatusOr<std::unique_ptr<TlsListener>> TlsListener::Start(const std::string& address,
                                                                TlsFiles files, Daemon* daemon,
                                                                std::shared_ptr<HealthState> health,
                                                                std::shared_ptr<Metrics> metrics,
                                                                ConnectionCap* cap) {
  auto out = std::unique_ptr<TlsListener>(
      new TlsListener(std::move(files), daemon, std::move(health), std::move(metrics)));
  GLYD_ASSIGN_OR_RETURN(TlsMaterial material, LoadTls(out->files_));
  GLYD_RETURN_IF_ERROR(out->Use(std::move(material)));
  GLYD_ASSIGN_OR_RETURN(UniqueFd socket, ListenTcp(address, "listen"));
  out->acceptor_ =
      std::make_unique<Acceptor>(std::move(socket), [listener = out.get(), cap](UniqueFd s) {
        if (!cap->Admit(s, /*peer=*/0)) return;
        const int one = 1;
        ::setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        std::shared_ptr<GrpcServer> server;
        {
          absl::MutexLock lock(&listener->mu_);
          server = listener->servers_.back();
        }
        server->Take(std::move(s));
      });
  return out;
}

absl::Status TlsListener::Use(TlsMaterial material) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<GrpcServer> server,
                        GrpcServer::Start(daemon_, health_, metrics_, NewTlsCredentials(material)));
  material_ = std::move(material);
  std::shared_ptr<GrpcServer> oldest;
  absl::MutexLock lock(&mu_);
  servers_.push_back(std::move(server));
  if (servers_.size() > kMaxServers) {
    oldest = std::move(servers_.front());
    servers_.erase(servers_.begin());
  }
  return absl::OkStatus();
}

void TlsListener::LookAgain() {
  auto material = LoadTls(files_);
  if (material.ok() && *material == material_) {
    last_error_.clear();
    return;
  }
  const absl::Status s = material.ok() ? Use(*std::move(material)) : material.status();
  if (s.ok()) {
    Log(LogLevel::kInfo, "certificate changed");
  } else if (s.message() != last_error_) {
    // Once: the files are looked at every few seconds.
    Log(LogLevel::kError, "new certificate refused, the last good one stays",
        {{"error", s.message()}});
  }
  last_error_ = std::string(s.message());
}

void TlsListener::Stop() { acceptor_->Stop(); }

void TlsListener::Shutdown(absl::Duration grace) {
  std::vector<std::shared_ptr<GrpcServer>> servers;
  {
    absl::MutexLock lock(&mu_);
    servers.swap(servers_);
  }
  std::vector<std::thread> threads;
  for (const auto& s : servers) threads.emplace_back([&s, grace] { s->Shutdown(grace); });
  for (std::thread& t : threads) t.join();
}

}  // namespace glyd
