#include "server/rpc/tls_listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "server/core/log.h"

namespace glyd {
namespace {

// Certificates that live for an hour and connections that never end would pile servers up.
constexpr size_t kMaxServers = 4;

absl::StatusOr<UniqueFd> ListenTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("listen ", address, ": ", ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  UniqueFd s(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  // No SO_REUSEPORT: a second daemon on one port must fail, not share it.
  if (!s || ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(s.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(s.get(), 1024) != 0)
    return ErrnoStatus(errno, absl::StrCat("listen ", address));
  return s;
}

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
  GLYD_ASSIGN_OR_RETURN(UniqueFd socket, ListenTcp(address));
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
