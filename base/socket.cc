#include "base/socket.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un a = {};
  a.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof a.sun_path)
    return absl::InvalidArgumentError(absl::StrCat("socket path ", Printable(path), ": ",
                                                   path.size(), " characters, 1 to ",
                                                   sizeof a.sun_path - 1, " are possible"));
  std::memcpy(a.sun_path, path.data(), path.size());
  return a;
}

// recvmsg of up to `bytes`, descriptors added to `fds`. 0 at the end of the stream.
absl::StatusOr<size_t> Receive(int socket, void* out, size_t bytes, std::vector<UniqueFd>* fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  iovec iov = {out, bytes};
  msghdr m = {};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  ssize_t n;
  do {
    n = ::recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return ErrnoStatus(errno, "receiving");
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
  if (m.msg_flags & MSG_CTRUNC) {
    fds->clear();
    return absl::DataLossError("receiving: descriptors lost (too many at once, or none left here)");
  }
  return static_cast<size_t>(n);
}

}  // namespace

absl::Status SendFrame(int socket, absl::string_view data, absl::Span<const int> fds) {
  if (fds.size() > kMaxFds || data.size() > UINT32_MAX)
    return absl::InvalidArgumentError("a frame too large to send");
  uint32_t length = static_cast<uint32_t>(data.size());
  iovec iov[2] = {{&length, sizeof length}, {const_cast<char*>(data.data()), data.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr m = {};
  m.msg_iov = iov;
  m.msg_iovlen = 2;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  while (m.msg_iovlen > 0) {
    const ssize_t n = ::sendmsg(socket, &m, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "sending");
    }
    m.msg_control = nullptr;
    m.msg_controllen = 0;
    size_t sent = static_cast<size_t>(n);
    while (m.msg_iovlen > 0 && sent >= m.msg_iov->iov_len) {
      sent -= m.msg_iov->iov_len;
      ++m.msg_iov, --m.msg_iovlen;
    }
    if (m.msg_iovlen > 0) {
      m.msg_iov->iov_base = static_cast<char*>(m.msg_iov->iov_base) + sent;
      m.msg_iov->iov_len -= sent;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Frame> RecvFrame(int socket, size_t max_bytes) {
  Frame f;
  char head[4];
  size_t have = 0;
  while (have < sizeof head) {
    GLYD_ASSIGN_OR_RETURN(const size_t n, Receive(socket, head + have, sizeof head - have, &f.fds));
    if (n == 0)
      return have == 0 ? absl::OutOfRangeError("the peer closed the connection")
                       : absl::DataLossError("the connection ended inside a message");
    have += n;
  }
  const uint32_t length = LoadLe32(head);
  if (length > max_bytes)
    return absl::DataLossError(
        absl::StrCat("a message of ", length, " bytes, at most ", max_bytes));
  f.data.resize(length);
  for (size_t at = 0; at < length;) {
    GLYD_ASSIGN_OR_RETURN(const size_t n, Receive(socket, f.data.data() + at, length - at, &f.fds));
    if (n == 0) return absl::DataLossError("the connection ended inside a message");
    at += n;
  }
  return f;
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int backlog) {
  GLYD_ASSIGN_OR_RETURN(const sockaddr_un a, Address(path));
  UniqueFd s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!s) return ErrnoStatus(errno, "socket");
  const mode_t old = ::umask(0177);
  const int bound = ::bind(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a);
  const int error = errno;
  ::umask(old);
  if (bound != 0) return ErrnoStatus(error, absl::StrCat("socket ", Printable(path)));
  if (::listen(s.get(), backlog) != 0)
    return ErrnoStatus(errno, absl::StrCat("socket ", Printable(path)));
  return s;
}

absl::StatusOr<UniqueFd> ListenTcp(const std::string& address, absl::string_view what) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(what, " ", address, ": not HOST:PORT"));
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
        absl::StrCat(what, " ", address, ": ", ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  UniqueFd s(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  // No SO_REUSEPORT: a second daemon on one port must fail, not share it.
  if (!s || ::setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(s.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(s.get(), 1024) != 0)
    return ErrnoStatus(errno, absl::StrCat(what, " ", address));
  return s;
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  GLYD_ASSIGN_OR_RETURN(const sockaddr_un a, Address(path));
  UniqueFd s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!s) return ErrnoStatus(errno, "socket");
  if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0)
    return ErrnoStatus(errno, Printable(path));
  return s;
}

absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket) {
  ucred c;
  socklen_t n = sizeof c;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &c, &n) != 0)
    return ErrnoStatus(errno, "peer credentials");
  return PeerCredentials{c.pid, c.uid, c.gid};
}

}  // namespace glyd
