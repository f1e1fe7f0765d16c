#ifndef GLYD_BASE_SOCKET_H_
#define GLYD_BASE_SOCKET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"

namespace glyd {

// Messages and file descriptors over Unix sockets. A frame is a 32-bit little-endian length and
// that many bytes, over SOCK_STREAM; descriptors travel with its first byte.

inline constexpr size_t kMaxFds = 16;  // a message's; Linux takes 253

struct Frame {
  std::string data;
  std::vector<UniqueFd> fds;
};

// Blocks until all is sent. Unavailable where the peer is gone; no SIGPIPE.
absl::Status SendFrame(int socket, absl::string_view data, absl::Span<const int> fds = {});

// Blocks for one frame. OutOfRange at an orderly end between frames; DataLoss for an end inside
// one, a length over `max_bytes`, or descriptors that did not fit (those that came are closed).
// Descriptors are close-on-exec.
absl::StatusOr<Frame> RecvFrame(int socket, size_t max_bytes);

// A listening or connected Unix socket at `path`. InvalidArgument, with both numbers, past 107
// characters.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int backlog);
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path);

// A listening TCP socket at "HOST:PORT" or "[HOST]:PORT"; AlreadyExists where another has the port.
// `what` opens the errors' texts.
absl::StatusOr<UniqueFd> ListenTcp(const std::string& address, absl::string_view what);

struct PeerCredentials {
  int pid = 0;
  unsigned uid = 0, gid = 0;
};
absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket);

}  // namespace glyd

#endif  // GLYD_BASE_SOCKET_H_
