#ifndef GLYD_CLIENT_SRC_LEASE_KEEPER_H_
#define GLYD_CLIENT_SRC_LEASE_KEEPER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "client/src/session.h"

namespace glyd::internal {

// A lease that a Model holds, as it is now: another one after the daemon's restart.
struct HeldLease {
  std::string model, manifest_sha256;  // set before it is kept

  absl::Mutex mu;
  std::shared_ptr<Session> session ABSL_GUARDED_BY(mu);
  std::string id ABSL_GUARDED_BY(mu);       // empty once released
  absl::Status status ABSL_GUARDED_BY(mu);  // why it is not held now
  bool lost ABSL_GUARDED_BY(mu) = false;    // for good
};

// Watches the sessions of the leases that it keeps, and leases anew where a daemon has gone and one
// is back. A thread of its own, from the first lease on; it sleeps until a session ends.
// Thread-safe.
class LeaseKeeper {
 public:
  // Tries once to lease anew: sets session, id and status. FailedPrecondition: it is lost for good.
  using Renew = std::function<absl::Status(HeldLease&)>;
  explicit LeaseKeeper(Renew renew);
  ~LeaseKeeper();

  // Kept while somebody else holds it.
  void Keep(const std::shared_ptr<HeldLease>& lease);

 private:
  void Run();
  void Wake();
  // false: a lease waits to be renewed. `watched` are the sessions of those that are held.
  bool RenewSome(std::vector<std::shared_ptr<Session>>* watched);

  const Renew renew_;
  const UniqueFd wake_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<HeldLease>> leases_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_LEASE_KEEPER_H_
