#ifndef GLYD_CLIENT_SRC_CONNECTION_H_
#define GLYD_CLIENT_SRC_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/src/address.h"
#include "client/src/errors.h"
#include "client/src/lease_keeper.h"
#include "client/src/session.h"
#include "glyd/client.h"
#include "glyd/v1/jobs.grpc.pb.h"
#include "glyd/v1/linear.grpc.pb.h"
#include "glyd/v1/models.grpc.pb.h"
#include "glyd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/device/device.h"

namespace glyd::internal {

// A channel to a daemon, and the session over its broker, begun when first needed and begun again
// after a restart of the daemon. Thread-safe.
class Connection {
 public:
  static absl::StatusOr<std::shared_ptr<Connection>> Open(ConnectOptions options);

  const Address& address() const { return address_; }
  v1::Models::Stub& models() const { return *models_; }
  v1::Jobs::Stub& jobs() const { return *jobs_; }
  v1::Linear::Stub& linear() const { return *linear_; }
  v1::Server::Stub& server() const { return *server_; }
  grpc::health::v1::Health::Stub& health() const { return *health_; }
  // Keeps the leases of this connection's models over a restart of the daemon.
  LeaseKeeper& keeper() { return keeper_; }
  // Maps what the daemon lends.
  Device& device() { return *device_; }

  // The session that is now in use. FailedPrecondition over TCP, where there is no broker.
  absl::StatusOr<std::shared_ptr<Session>> GetSession() ABSL_LOCKS_EXCLUDED(mutex_);

  // One unary call, in the name of `session` where given. A deadline of zero is the connection's.
  template <typename Stub, typename Request, typename Reply>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*rpc)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, const Session* session = nullptr,
                    absl::Duration deadline = absl::ZeroDuration()) const {
    grpc::ClientContext context;
    Prepare(context, deadline, session);
    return ToStatus((stub.*rpc)(&context, request, reply), address_.text);
  }

  // A server's stream, each message given to `each` until that returns false (Cancelled, "stopped
  // by the caller").
  template <typename Stub, typename Request, typename Event>
  absl::Status Follow(Stub& stub,
                      std::unique_ptr<grpc::ClientReader<Event>> (Stub::*rpc)(grpc::ClientContext*,
                                                                              const Request&),
                      const Request& request, absl::Duration deadline,
                      const std::function<bool(Event&)>& each) const {
    grpc::ClientContext context;
    Prepare(context, deadline, nullptr);
    auto reader = (stub.*rpc)(&context, request);
    Event event;
    bool stopped = false;
    while (!stopped && reader->Read(&event)) stopped = !each(event);
    if (stopped) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (stopped) return absl::CancelledError("stopped by the caller");
    return ToStatus(status, address_.text);
  }

 private:
  Connection(ConnectOptions options, Address address);
  absl::Status WaitUntilReady();
  absl::Status WhyNot(bool timed_out) const;
  absl::Status RenewLease(HeldLease& lease);
  void Prepare(grpc::ClientContext& context, absl::Duration deadline, const Session* session) const;

  const ConnectOptions options_;
  const Address address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Models::Stub> models_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Linear::Stub> linear_;
  std::unique_ptr<v1::Server::Stub> server_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  std::unique_ptr<Device> device_;
  absl::Mutex mutex_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  LeaseKeeper keeper_;  // the last: its thread uses the rest
};

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_CONNECTION_H_
