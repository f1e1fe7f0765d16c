#ifndef GLYD_SERVER_RPC_SERVICES_H_
#define GLYD_SERVER_RPC_SERVICES_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <vector>

#include "server/core/arenas.h"
#include "server/core/config.h"
#include "server/core/jobs.h"
#include "server/core/models.h"
#include "server/core/sessions.h"

namespace glyd {

// All that the services speak for; it outlives them.
struct Daemon {
  const Config* config = nullptr;
  const Roots* roots = nullptr;
  std::vector<ServedDevice*> devices;
  Sessions* sessions = nullptr;
  Models* models = nullptr;
  Arenas* arenas = nullptr;
  Jobs* jobs = nullptr;
  absl::Time started;
  std::function<void()> exit;  // ends the daemon as SIGTERM does

  // The session of a call's metadata key "glyd-session".
  absl::StatusOr<Session> SessionOf(const grpc::CallbackServerContext& context) const;
};

// Health by the daemon's own state: "" and "readiness" serve while the daemon takes work,
// "liveness" while it lives, "glyd.model.NAME" while that model is READY.
class HealthState;
std::shared_ptr<HealthState> NewHealthState(Daemon* daemon);
// Tells watchers what has changed.
void RefreshHealth(HealthState& health);
// Not serving, at once and for good.
void StopHealth(HealthState& health);

std::unique_ptr<grpc::Service> NewModelsService(Daemon* daemon);
std::unique_ptr<grpc::Service> NewJobsService(Daemon* daemon);
std::unique_ptr<grpc::Service> NewLinearService(Daemon* daemon);
std::unique_ptr<grpc::Service> NewServerService(Daemon* daemon,
                                                std::shared_ptr<HealthState> health);
std::unique_ptr<grpc::Service> NewHealthService(std::shared_ptr<HealthState> health);

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_SERVICES_H_
