#include "server/rpc/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "server/core/log.h"

namespace glyd {

bool ConnectionCap::Full(int64_t peer) const {
  if (open_.size() >= total_) return true;
  const auto of_peer =
      std::count_if(open_.begin(), open_.end(), [peer](const Open& o) { return o.peer == peer; });
  return peer != 0 && static_cast<size_t>(of_peer) >= per_peer_;
}

bool ConnectionCap::Admit(const UniqueFd& connection, int64_t peer) {
  struct stat st;
  if (::fstat(connection.get(), &st) != 0) return false;
  absl::MutexLock lock(&mu_);
  if (Full(peer)) {
    std::erase_if(open_, [](const Open& o) {
      struct stat now;
      return ::fstat(o.fd, &now) != 0 || now.st_ino != o.inode;
    });
    if (Full(peer)) return false;
  }
  open_.push_back({connection.get(), st.st_ino, peer});
  return true;
}

Acceptor::Acceptor(UniqueFd listener, std::function<void(UniqueFd)> take)
    : listener_(std::move(listener)), wake_(::eventfd(0, EFD_CLOEXEC)), take_(std::move(take)) {
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  stopping_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void Acceptor::Run() {
  while (!stopping_) {
    pollfd ready[2] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 || stopping_ || !(ready[0].revents & POLLIN)) continue;
    UniqueFd s(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s) {
      take_(std::move(s));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      Log(LogLevel::kWarning, "out of descriptors, connections wait");
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
}

}  // namespace glyd
