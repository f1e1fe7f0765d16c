#include "server/broker/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "server/core/log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace glyd {
namespace {

using glyd::v1::BrokerReply;
using glyd::v1::BrokerRequest;

constexpr uint64_t kListenerKey = 0, kWakeKey = 2;
constexpr size_t kMaxFrame = 64 << 10;
constexpr uint32_t kProtocol = 1;
// A connection that says nothing is closed: sessions are what is limited, not connections.
constexpr absl::Duration kHelloTimeout = absl::Seconds(10);

// The peer's process. SO_PEERPIDFD names the very process that connected; pidfd_open, for older
// kernels, whatever has its number now.
UniqueFd OpenPidfd(int socket, int pid) {
  int fd = -1;
  socklen_t n = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &n) == 0 && fd >= 0) return UniqueFd(fd);
  if (pid > 0) return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return UniqueFd();
}

}  // namespace

bool AllowedPeers::Allows(uint32_t uid, uint32_t gid, int pid) const {
  if (uid == ::geteuid() || std::find(uids.begin(), uids.end(), uid) != uids.end()) return true;
  const auto listed = [this](uint32_t g) {
    return std::find(gids.begin(), gids.end(), g) != gids.end();
  };
  if (gids.empty()) return false;
  if (listed(gid)) return true;
  // The peer's supplementary groups, from its status: SO_PEERCRED has but the primary one.
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Groups:", 0) != 0) continue;
    std::istringstream groups(line.substr(7));
    for (uint32_t g; groups >> g;)
      if (listed(g)) return true;
  }
  return false;
}

Broker::Broker(UniqueFd listener, Options options, Sessions* sessions, Models* models,
               Arenas* arenas)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      sessions_(sessions),
      models_(models),
      arenas_(arenas),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
  for (const auto& [fd, key] :
       {std::pair(listener_.get(), kListenerKey), std::pair(wake_.get(), kWakeKey)}) {
    epoll_event e = {};
    e.events = EPOLLIN;
    e.data.u64 = key;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e);
  }
  thread_ = std::thread([this] { Run(); });
}

Broker::~Broker() {
  stopping_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Broker::Run() {
  while (!stopping_) {
    epoll_event events[64];
    const bool hellos_due = std::any_of(connections_.begin(), connections_.end(),
                                        [](const auto& c) { return c.second.session == 0; });
    const int n = ::epoll_wait(epoll_.get(), events, 64, hellos_due ? 1000 : -1);
    for (int i = 0; i < n; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kListenerKey)
        Accept();
      else if (key == kWakeKey)
        continue;
      else if (key & 1)
        Close(key & ~uint64_t{1});  // the process is dead
      else
        OnReadable(key);
    }
    if (hellos_due) CloseIdle();
  }
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void Broker::CloseIdle() {
  std::vector<uint64_t> idle;
  for (const auto& [key, c] : connections_)
    if (c.session == 0 && absl::Now() - c.since > kHelloTimeout) idle.push_back(key);
  for (const uint64_t key : idle) Close(key);
}

void Broker::Accept() {
  for (;;) {
    UniqueFd s(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!s) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE) {
        // The spare one lets the connection be taken and ended, so that the peer hears of it and
        // the listener is not ready for ever.
        spare_.reset();
        s.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        s.reset();
        spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        Log(LogLevel::kWarning, "broker out of descriptors");
        absl::SleepFor(absl::Milliseconds(10));
      }
      return;
    }
    Connection c;
    const auto peer = GetPeerCredentials(s.get());
    if (!peer.ok()) continue;
    c.pid = peer->pid;
    c.uid = peer->uid;
    c.since = absl::Now();
    if (!options_.allowed.Allows(peer->uid, peer->gid, peer->pid)) {
      c.refused = absl::StrCat("uid ", peer->uid,
                               " may not connect; the operator lists it with --allow-uid");
      Log(LogLevel::kWarning, "peer refused", {{"uid", peer->uid}, {"pid", peer->pid}});
    }
    c.pidfd = OpenPidfd(s.get(), peer->pid);
    const uint64_t key = next_key_ += 2;
    epoll_event e = {};
    e.events = EPOLLIN | EPOLLRDHUP;
    e.data.u64 = key;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, s.get(), &e) != 0) continue;
    if (c.pidfd) {
      e.events = EPOLLIN;
      e.data.u64 = key | 1;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.pidfd.get(), &e);
    }
    c.socket = std::move(s);
    connections_.emplace(key, std::move(c));
  }
}

void Broker::Close(uint64_t key) {
  const auto it = connections_.find(key);
  if (it == connections_.end()) return;
  const uint64_t session = it->second.session;
  // A forked child may hold the socket too: shut it down for both.
  ::shutdown(it->second.socket.get(), SHUT_RDWR);
  connections_.erase(it);
  if (session != 0) {
    sessions_->End(session);
    options_.on_end(session);
  }
}

void Broker::OnReadable(uint64_t key) {
  const auto it = connections_.find(key);
  if (it == connections_.end()) return;
  Connection& c = it->second;
  for (;;) {
    char buffer[4096];
    // Descriptors that a peer sends are dropped by the kernel: there is no room for control data
    // here.
    const ssize_t n = ::recv(c.socket.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return Close(key);
    c.in.append(buffer, static_cast<size_t>(n));
    while (c.in.size() >= 4) {
      const uint32_t length = LoadLe32(c.in.data());
      if (length > kMaxFrame) return Close(key);
      if (c.in.size() < 4 + size_t{length}) break;
      BrokerRequest request;
      const bool good =
          request.ParseFromArray(c.in.data() + 4, static_cast<int>(length)) && Serve(c, request);
      if (!good) return Close(key);
      c.in.erase(0, 4 + size_t{length});
    }
  }
}

bool Broker::Serve(Connection& c, const BrokerRequest& request) {
  BrokerReply reply;
  std::vector<SharedFd> fds;
  absl::Status s;
  if (!c.refused.empty())
    s = WithReason(absl::PermissionDeniedError(c.refused), "NOT_ALLOWED");
  else if (request.has_hello())
    s = Hello(c, request.hello(), &reply);
  else if (!request.has_fetch())
    return false;
  else if (c.session == 0)
    s = WithReason(absl::FailedPreconditionError("say hello first"), "NO_SESSION");
  else
    s = Fetch(c, request.fetch(), &reply, &fds);
  reply.set_code(static_cast<int>(s.code()));
  reply.set_message(std::string(s.message()));
  reply.set_reason(ReasonOf(s));
  // One who may not connect gets the reason, and the end.
  return Reply(c, reply, fds) && c.refused.empty();
}

absl::Status Broker::Hello(Connection& c, const glyd::v1::BrokerHello& hello, BrokerReply* reply) {
  if (c.session != 0) return absl::FailedPreconditionError("a second hello");
  if (hello.protocol() != kProtocol)
    return WithReason(absl::InvalidArgumentError(absl::StrCat("broker protocol ", hello.protocol(),
                                                              ", this daemon speaks ", kProtocol)),
                      "PROTOCOL");
  GLYD_ASSIGN_OR_RETURN(const Sessions::Begun begun, sessions_->Begin(c.pid, c.uid));
  c.session = begun.session.id;
  glyd::v1::BrokerWelcome& w = *reply->mutable_welcome();
  w.set_token(begun.token);
  w.set_generation(models_->generation());
  w.set_boot_id(options_.boot_id);
  w.set_version(options_.version);
  w.set_pid(::getpid());
  return absl::OkStatus();
}

absl::Status Broker::Fetch(Connection& c, const glyd::v1::BrokerFetch& fetch, BrokerReply* reply,
                           std::vector<SharedFd>* fds) {
  glyd::v1::BrokerFds& out = *reply->mutable_fds();
  if (!fetch.arena_id().empty()) {
    GLYD_ASSIGN_OR_RETURN(const std::shared_ptr<Arena> arena,
                          arenas_->Find(c.session, fetch.arena_id()));
    out.set_memory_bytes(arena->bytes);
    out.set_has_memory(true);
    fds->push_back(arena->memory);
    return absl::OkStatus();
  }
  GLYD_ASSIGN_OR_RETURN(const std::shared_ptr<Allocation> a,
                        models_->Leased(c.session, fetch.lease_id()));
  out.set_memory_bytes(a->bytes);
  out.set_table_bytes(a->table_bytes);
  out.set_has_memory(true);
  fds->push_back(a->memory);
  fds->push_back(a->table);
  return absl::OkStatus();
}

// Replies are small: a peer whose socket is full does not read them, and is not waited for.
bool Broker::Reply(Connection& c, const BrokerReply& reply, const std::vector<SharedFd>& fds) {
  std::vector<int> raw;
  for (const SharedFd& fd : fds) raw.push_back(fd->get());
  return SendFrame(c.socket.get(), reply.SerializeAsString(), raw).ok();
}

}  // namespace glyd
