#ifndef GLYD_TESTS_E2E_CALLS_H_
#define GLYD_TESTS_E2E_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "glyd/v1/broker.pb.h"
#include "glyd/v1/jobs.grpc.pb.h"
#include "glyd/v1/linear.grpc.pb.h"
#include "glyd/v1/models.grpc.pb.h"
#include "glyd/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace glyd {

// A daemon's API without the client library, for what that would never send.

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& server);
// A context that ends after `seconds`, in the name of a session where its token (hex) is given.
std::unique_ptr<grpc::ClientContext> Deadline(int seconds = 10, const std::string& token = "");
// google.rpc.ErrorInfo's reason.
std::string ReasonIn(const grpc::Status& status);

// One request of the broker's and its reply.
absl::StatusOr<v1::BrokerReply> AskBroker(int socket, const v1::BrokerRequest& request);
absl::StatusOr<v1::BrokerReply> Hello(int socket, uint32_t protocol = 1);

// A connection to the broker with its session, and stubs.
class RawClient {
 public:
  // `directory` is the daemon's.
  explicit RawClient(const std::string& directory);
  bool ok() const { return !token_.empty(); }
  const std::string& token() const { return token_; }
  int broker() const { return broker_.get(); }
  // Ends the session.
  void Hang() { broker_.reset(); }

  grpc::Status Attach(const std::string& model, v1::AttachReply* reply);
  grpc::Status Release(const std::string& lease);
  grpc::Status Load(const std::string& name, const std::string& path, bool verify = false);
  // Loads and waits for READY or FAILED: the model as it then is.
  v1::Model LoadAndWait(const std::string& name, const std::string& path, bool verify = false);
  grpc::Status Unload(const std::string& name, bool drain = false);
  v1::Model Get(const std::string& name);
  v1::InfoReply Info(int seconds = 10);
  std::vector<v1::Model> List();
  grpc::Status Linear(const v1::LinearRequest& request, v1::LinearReply* reply, int seconds = 60);
  v1::Job WaitForJob(const std::string& id);

  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Jobs::Stub> jobs;
  std::unique_ptr<v1::Linear::Stub> linear;
  std::unique_ptr<v1::Server::Stub> server;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;

 private:
  UniqueFd broker_;
  std::string token_;
};

}  // namespace glyd

#endif  // GLYD_TESTS_E2E_CALLS_H_
