#ifndef GLYD_SERVER_BROKER_BROKER_H_
#define GLYD_SERVER_BROKER_BROKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "glyd/v1/broker.pb.h"
#include "server/core/arenas.h"
#include "server/core/models.h"
#include "server/core/sessions.h"

namespace glyd {

// Who may connect: the daemon's own user, and those that the operator named.
struct AllowedPeers {
  std::vector<uint32_t> uids, gids;
  bool Allows(uint32_t uid, uint32_t gid, int pid) const;
};

// Serves the broker's socket (proto/glyd/v1/broker.proto) on a thread of its own: sessions begin
// and end here, and descriptors leave by here. A session ends at its connection's end, or when its
// process is dead (a pidfd), although a child of it may hold the socket. A peer that sends
// nonsense, or does not read, loses its connection alone.
class Broker {
 public:
  struct Options {
    AllowedPeers allowed;
    std::string version, boot_id;
    // After the session is no longer in Sessions.
    std::function<void(uint64_t session_id)> on_end;
  };
  // `listener` is bound and listens. The others outlive this.
  Broker(UniqueFd listener, Options options, Sessions* sessions, Models* models, Arenas* arenas);
  ~Broker();

 private:
  struct Connection {
    UniqueFd socket, pidfd;
    int pid = 0;
    uint32_t uid = 0;
    std::string in;
    uint64_t session = 0;  // 0: none yet
    std::string refused;   // why every request is refused
    absl::Time since;
  };

  void Run();
  void Accept();
  void OnReadable(uint64_t key);
  bool Serve(Connection& c, const glyd::v1::BrokerRequest& request);
  bool Reply(Connection& c, const glyd::v1::BrokerReply& reply,
             const std::vector<SharedFd>& fds = {});
  absl::Status Hello(Connection& c, const glyd::v1::BrokerHello& hello,
                     glyd::v1::BrokerReply* reply);
  absl::Status Fetch(Connection& c, const glyd::v1::BrokerFetch& fetch,
                     glyd::v1::BrokerReply* reply, std::vector<SharedFd>* fds);
  void Close(uint64_t key);
  void CloseIdle();

  const UniqueFd listener_;
  const Options options_;
  Sessions* const sessions_;
  Models* const models_;
  Arenas* const arenas_;
  UniqueFd epoll_, wake_, spare_;
  // The thread's alone. Keys are even for a connection's socket, odd for its pidfd.
  std::unordered_map<uint64_t, Connection> connections_;
  uint64_t next_key_ = 16;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_BROKER_BROKER_H_
