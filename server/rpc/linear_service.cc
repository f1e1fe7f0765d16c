#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "glyd/v1/linear.grpc.pb.h"
#include "server/core/errors.h"
#include "server/rpc/push_stream.h"
#include "server/rpc/services.h"

namespace glyd {
namespace {

using glyd::v1::LinearReply;
using glyd::v1::LinearRequest;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr uint64_t kMaxInline = uint64_t{1} << 20;
constexpr uint64_t kMaxRows = uint64_t{1} << 24;

// A product on its way, and what must not be freed under it.
struct Running {
  std::shared_ptr<Allocation> model;
  std::shared_ptr<Arena> x, y;
  worker::v1::ToWorker message;
};

class LinearService final : public glyd::v1::Linear::CallbackService {
 public:
  explicit LinearService(Daemon* d) : d_(d) {}

  ServerUnaryReactor* Run(CallbackServerContext* c, const LinearRequest* r,
                          LinearReply* reply) override {
    auto running = Check(*c, *r);
    if (!running.ok()) return FinishUnary(c, running.status());
    ServerUnaryReactor* reactor = c->DefaultReactor();
    DeviceSlot* slot = (*running)->model->device->slot.get();
    worker::v1::ToWorker message = std::move((*running)->message);
    // The reply lives until Finish; the default reactor needs no word of a cancel.
    slot->Call(std::move(message), {},
               [reactor, reply, running = *running](const worker::v1::FromWorker& m,
                                                    std::vector<UniqueFd>) {
                 if (m.has_error()) return reactor->Finish(ToGrpc(ToStatus(m.error())));
                 if (!m.has_done()) return;
                 reply->set_y_inline(m.done().y_inline());
                 reply->set_rows(m.done().rows());
                 reply->set_cols(m.done().cols());
                 reply->set_device_nanoseconds(m.done().nanoseconds());
                 reactor->Finish(grpc::Status::OK);
               });
    return reactor;
  }

  ServerUnaryReactor* CreateArena(CallbackServerContext* c, const glyd::v1::CreateArenaRequest* r,
                                  glyd::v1::CreateArenaReply* reply) override {
    const auto session = d_->SessionOf(*c);
    if (!session.ok()) return FinishUnary(c, session.status());
    ServerUnaryReactor* reactor = c->DefaultReactor();
    d_->arenas->Create(
        session->id, r->bytes(), r->device(),
        [this, c, reactor, reply, id = session->id](absl::StatusOr<std::shared_ptr<Arena>> arena) {
          absl::Status s = arena.status();
          // As for a lease: the session may have ended meanwhile.
          if (s.ok()) s = d_->SessionOf(*c).status();
          if (!s.ok()) {
            if (arena.ok()) d_->arenas->EndSession(id);
            return reactor->Finish(ToGrpc(s));
          }
          reply->set_arena_id((*arena)->id);
          reply->set_bytes((*arena)->bytes);
          reply->set_generation(d_->models->generation());
          reactor->Finish(grpc::Status::OK);
        });
    return reactor;
  }

  ServerUnaryReactor* ReleaseArena(CallbackServerContext* c, const glyd::v1::ReleaseArenaRequest* r,
                                   glyd::v1::ReleaseArenaReply*) override {
    const auto session = d_->SessionOf(*c);
    return FinishUnary(
        c, session.ok() ? d_->arenas->Release(session->id, r->arena_id()) : session.status());
  }

 private:
  absl::StatusOr<std::shared_ptr<Running>> Check(const CallbackServerContext& c,
                                                 const LinearRequest& r) {
    const auto bad = [](const auto&... parts) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(parts...)), "BAD_LINEAR");
    };
    GLYD_ASSIGN_OR_RETURN(const Session session, d_->SessionOf(c));
    auto out = std::make_shared<Running>();
    GLYD_ASSIGN_OR_RETURN(out->model, d_->models->Leased(session.id, r.lease_id()));
    if (r.m() == 0 || r.m() > kMaxRows) return bad("m is ", r.m(), ", 1 to ", kMaxRows);
    worker::v1::Product& p = *out->message.mutable_product();
    p.set_model_id(out->model->id);
    p.set_pack(r.pack());
    p.set_m(r.m());
    p.set_bias(r.bias());
    if (r.has_x_arena()) {
      GLYD_ASSIGN_OR_RETURN(out->x, Range(session, r.x_arena(), *out->model, "x"));
      p.set_x_arena(out->x->number);
      p.set_x_offset(r.x_arena().offset());
    } else {
      if (r.x_inline().size() > kMaxInline)
        return bad("x is ", r.x_inline().size(), " bytes inline, at most ", kMaxInline,
                   ": use an arena");
      p.set_x_inline(r.x_inline());
    }
    if (r.has_y_arena()) {
      GLYD_ASSIGN_OR_RETURN(out->y, Range(session, r.y_arena(), *out->model, "y"));
      p.set_y_arena(out->y->number);
      p.set_y_offset(r.y_arena().offset());
    }
    return out;
  }

  // Where the range ends depends on the pack, so the worker checks that.
  absl::StatusOr<std::shared_ptr<Arena>> Range(const Session& session,
                                               const glyd::v1::ArenaRange& r,
                                               const Allocation& model, absl::string_view what) {
    GLYD_ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, d_->arenas->Find(session.id, r.arena_id()));
    if (r.offset() % 16 != 0 || r.offset() > arena->bytes)
      return WithReason(absl::InvalidArgumentError(
                            absl::StrCat(what, " at offset ", r.offset(), " of an arena of ",
                                         arena->bytes, " bytes: want a multiple of 16 inside it")),
                        "BAD_LINEAR");
    if (arena->device != model.device)
      return WithReason(absl::InvalidArgumentError(
                            absl::StrCat(what, "'s arena is on ", arena->device->slot->name(),
                                         ", the model on ", model.device->slot->name())),
                        "BAD_LINEAR");
    return arena;
  }

  Daemon* const d_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewLinearService(Daemon* daemon) {
  return std::make_unique<LinearService>(daemon);
}

}  // namespace glyd
