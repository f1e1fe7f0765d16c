#include "client/src/connection.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "glyd/status.h"

namespace glyd::internal {
namespace {

constexpr int kMinBackoffMs = 50;
constexpr int kMaxBackoffMs = 1000;
constexpr absl::Duration kRenewDeadline = absl::Seconds(2);
constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;

absl::StatusOr<std::string> ReadPem(const std::string& path, absl::string_view what) {
  if (path.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("a TCP server needs a TLS ", what, " file, and none is named"));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("TLS ", what, " file ", Printable(path)));
  return ReadWhole(fd.get(), kMaxPemBytes, Printable(path));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ConnectOptions& options,
                                                                      const Address& address) {
  if (!address.socket_path.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  GLYD_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem(options.tls_ca_file, "CA"));
  GLYD_ASSIGN_OR_RETURN(ssl.pem_cert_chain, ReadPem(options.tls_cert_file, "certificate"));
  GLYD_ASSIGN_OR_RETURN(ssl.pem_private_key, ReadPem(options.tls_key_file, "key"));
  return grpc::SslCredentials(ssl);
}

absl::Status NoDaemon(absl::string_view text) {
  return WithReason(absl::UnavailableError(text), kReasonNoDaemon);
}

}  // namespace

Connection::Connection(ConnectOptions options, Address address)
    : options_(std::move(options)),
      address_(std::move(address)),
      device_(CreateHostDevice(1)),
      keeper_([this](HeldLease& lease) { return RenewLease(lease); }) {}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(ConnectOptions options) {
  if (options.server.empty()) {
    const char* env = std::getenv("GLYD_SERVER");
    options.server = env != nullptr && *env != '\0' ? env : DefaultServer();
  }
  GLYD_ASSIGN_OR_RETURN(Address address, ParseAddress(options.server));
  GLYD_ASSIGN_OR_RETURN(const auto credentials, Credentials(options, address));
  grpc::ChannelArguments args;
  // A daemon that restarts is found again within a second; gRPC's own backoff grows to two minutes.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  // This one is in truth how long an attempt may take: a daemon that two hundred clients meet at
  // once answers each in its turn.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
              static_cast<int>(absl::ToInt64Milliseconds(options.connect_timeout)));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Two Clients of one process are two connections: one that is closed must not end the other's.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!address.socket_path.empty()) args.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");

  std::shared_ptr<Connection> c(new Connection(std::move(options), std::move(address)));
  c->channel_ = grpc::CreateCustomChannel(c->address_.target, credentials, args);
  GLYD_RETURN_IF_ERROR(c->WaitUntilReady());
  c->models_ = v1::Models::NewStub(c->channel_);
  c->jobs_ = v1::Jobs::NewStub(c->channel_);
  c->linear_ = v1::Linear::NewStub(c->channel_);
  c->server_ = v1::Server::NewStub(c->channel_);
  c->health_ = grpc::health::v1::Health::NewStub(c->channel_);
  return c;
}

absl::Status Connection::WaitUntilReady() {
  const auto until =
      std::chrono::system_clock::now() + absl::ToChronoNanoseconds(options_.connect_timeout);
  for (;;) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN)
      return WhyNot(/*timed_out=*/false);
    if (!channel_->WaitForStateChange(
            state, std::chrono::time_point_cast<std::chrono::system_clock::duration>(until)))
      return WhyNot(/*timed_out=*/true);
  }
}

// gRPC does not say why a channel did not connect; the socket does.
absl::Status Connection::WhyNot(bool timed_out) const {
  const std::string where = Printable(address_.text);
  const std::string waited = absl::FormatDuration(options_.connect_timeout);
  if (address_.socket_path.empty())
    return NoDaemon(absl::StrCat("no daemon at ", where, ": ",
                                 timed_out ? absl::StrCat("no answer within ", waited)
                                           : "the connection or its TLS handshake failed"));
  const absl::StatusOr<UniqueFd> probe = ConnectUnix(address_.socket_path);
  if (absl::IsPermissionDenied(probe.status()))
    return absl::PermissionDeniedError(
        absl::StrCat("socket ", probe.status().message(), " (glydd's --allow-uid lists who may)"));
  if (!probe.ok())
    return NoDaemon(absl::StrCat("no daemon at ", where, ": ", probe.status().message(),
                                 " (start one with: glydd --socket ",
                                 Printable(address_.socket_path), ")"));
  if (timed_out) return NoDaemon(absl::StrCat("no answer from ", where, " within ", waited));
  // Something listens and hangs up on us; the broker may say why.
  const auto session = Session::Open(address_.broker_path, options_.connect_timeout);
  if (absl::IsPermissionDenied(session.status()) || absl::IsUnauthenticated(session.status()))
    return session.status();
  return NoDaemon(absl::StrCat("what listens at ", where,
                               " closed the connection: not a glydd, or one that ",
                               "is stopping or does not admit this user"));
}

void Connection::Prepare(grpc::ClientContext& context, absl::Duration deadline,
                         const Session* session) const {
  if (deadline == absl::ZeroDuration()) deadline = options_.deadline;
  context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  if (session != nullptr) context.AddMetadata("glyd-session", session->token());
}

absl::StatusOr<std::shared_ptr<Session>> Connection::GetSession() {
  if (address_.broker_path.empty())
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", Printable(address_.text),
        ": memory is lent over a Unix socket alone; connect to unix:PATH on the daemon's host"));
  absl::MutexLock lock(&mutex_);
  if (session_ == nullptr || !session_->usable()) {
    session_ = nullptr;
    GLYD_ASSIGN_OR_RETURN(session_, Session::Open(address_.broker_path, options_.deadline));
  }
  return session_;
}

absl::Status Connection::RenewLease(HeldLease& lease) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, GetSession());
  v1::AttachRequest request;
  request.set_name(lease.model);
  v1::AttachReply reply;
  // There is a broker, so there is a daemon: the channel may still be in a pause of its own between
  // two attempts, up to a second long.
  grpc::experimental::ChannelResetConnectionBackoff(channel_.get());
  grpc::ClientContext context;
  Prepare(context, kRenewDeadline, session.get());
  context.set_wait_for_ready(true);
  const absl::Status s = ToStatus(models_->Attach(&context, request, &reply), address_.text);
  // A model that is not there, or failed to load, may come yet: whoever runs the daemon sees to it.
  if (!s.ok()) return absl::UnavailableError(s.message());
  const bool same = reply.model().manifest_sha256() == lease.manifest_sha256;
  {
    absl::MutexLock lock(&lease.mu);
    if (same && !lease.id.empty()) {
      lease.session = std::move(session);
      lease.id = reply.lease_id();
      lease.status = absl::OkStatus();
      return absl::OkStatus();
    }
  }
  // Another model, or this one was released meanwhile.
  v1::ReleaseRequest release;
  release.set_lease_id(reply.lease_id());
  v1::ReleaseReply released;
  (void)Call(*models_, &v1::Models::Stub::Release, release, &released, session.get(),
             kRenewDeadline);
  if (same) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        "the daemon was started again and has another model as \"",
                        Printable(lease.model), "\" now: attach again to use that one")),
                    "OTHER_MODEL");
}

}  // namespace glyd::internal
