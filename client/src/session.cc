#include "client/src/session.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "client/src/errors.h"
#include "glyd/status.h"
#include "glyd/v1/broker.pb.h"

namespace glyd::internal {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr size_t kMaxFrame = size_t{64} << 10;
constexpr size_t kTokenBytes = 32;

}  // namespace

absl::StatusOr<v1::BrokerReply> Session::RoundTrip(const v1::BrokerRequest& request,
                                                   std::vector<UniqueFd>* fds) {
  absl::MutexLock lock(&mutex_);
  const auto lost = [](const absl::Status& why) {
    return WithReason(absl::UnavailableError(absl::StrCat("broker: ", why.message())),
                      kReasonConnectionLost);
  };
  if (broken_) return lost(absl::UnavailableError("the session has ended"));
  // An answer that comes after its timeout would be taken for the next one's: broken from here on
  // unless all goes well.
  broken_ = true;
  if (absl::Status s = SendFrame(socket_.get(), request.SerializeAsString()); !s.ok())
    return lost(s);
  absl::StatusOr<Frame> frame = RecvFrame(socket_.get(), kMaxFrame);
  if (!frame.ok()) return lost(frame.status());
  v1::BrokerReply reply;
  if (!reply.ParseFromString(frame->data))
    return absl::DataLossError(
        absl::StrCat("broker: a reply of ", frame->data.size(), " bytes is no message"));
  broken_ = false;
  if (reply.code() != 0)
    return WithReason(absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message()),
                      reply.reason());
  *fds = std::move(frame->fds);
  return reply;
}

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& broker_path,
                                                       absl::Duration timeout) {
  absl::StatusOr<UniqueFd> socket = ConnectUnix(broker_path);
  if (!socket.ok()) {
    const absl::Status& s = socket.status();
    const std::string text = absl::StrCat("broker socket ", s.message());
    if (absl::IsPermissionDenied(s)) return absl::PermissionDeniedError(text);
    return WithReason(absl::UnavailableError(text), kReasonNoDaemon);
  }
  const timeval limit = absl::ToTimeval(timeout);
  if (::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(socket->get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
    return ErrnoStatus(errno, "broker socket");
  std::shared_ptr<Session> session(new Session(*std::move(socket)));
  v1::BrokerRequest hello;
  hello.mutable_hello()->set_protocol(kProtocol);
  std::vector<UniqueFd> fds;
  GLYD_ASSIGN_OR_RETURN(const v1::BrokerReply reply, session->RoundTrip(hello, &fds));
  const std::string& token = reply.welcome().token();
  if (token.size() != kTokenBytes)
    return absl::DataLossError(absl::StrCat("broker: a session token of ", token.size(), " bytes, ",
                                            kTokenBytes, " expected"));
  session->token_ =
      Hex(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(token.data()), token.size()));
  session->generation_ = reply.welcome().generation();
  return session;
}

absl::StatusOr<Session::LeaseMemory> Session::FetchLease(absl::string_view lease_id) {
  v1::BrokerRequest request;
  request.mutable_fetch()->set_lease_id(std::string(lease_id));
  std::vector<UniqueFd> fds;
  GLYD_ASSIGN_OR_RETURN(const v1::BrokerReply reply, RoundTrip(request, &fds));
  const size_t expected = reply.fds().has_memory() ? 2 : 1;
  if (!reply.has_fds() || fds.size() != expected)
    return absl::DataLossError(
        absl::StrCat("broker: ", fds.size(), " descriptors for a lease, ", expected, " expected"));
  LeaseMemory out;
  if (reply.fds().has_memory()) out.memory = {std::move(fds[0]), reply.fds().memory_bytes()};
  out.table = {std::move(fds.back()), reply.fds().table_bytes()};
  return out;
}

absl::StatusOr<Session::Memory> Session::FetchArena(absl::string_view arena_id) {
  v1::BrokerRequest request;
  request.mutable_fetch()->set_arena_id(std::string(arena_id));
  std::vector<UniqueFd> fds;
  GLYD_ASSIGN_OR_RETURN(const v1::BrokerReply reply, RoundTrip(request, &fds));
  if (!reply.has_fds() || fds.size() != 1)
    return absl::DataLossError(
        absl::StrCat("broker: ", fds.size(), " descriptors for an arena, 1 expected"));
  return Memory{std::move(fds[0]), reply.fds().memory_bytes()};
}

bool Session::usable() {
  absl::MutexLock lock(&mutex_);
  if (broken_) return false;
  // The broker speaks only when asked: anything to read now is its end.
  char byte;
  const ssize_t n = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

}  // namespace glyd::internal
