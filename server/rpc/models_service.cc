#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "glyd/v1/models.grpc.pb.h"
#include "server/core/errors.h"
#include "server/rpc/push_stream.h"
#include "server/rpc/services.h"

namespace glyd {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using namespace glyd::v1;  // NOLINT: the requests of one service

class ModelsService final : public glyd::v1::Models::CallbackService {
 public:
  explicit ModelsService(Daemon* d) : d_(d) {}

  ServerUnaryReactor* Load(CallbackServerContext* c, const LoadRequest* r,
                           LoadReply* reply) override {
    auto model = d_->models->Load(*r);
    if (model.ok()) *reply->mutable_model() = *std::move(model);
    return FinishUnary(c, model.status());
  }

  ServerUnaryReactor* Unload(CallbackServerContext* c, const UnloadRequest* r,
                             UnloadReply* reply) override {
    const auto draining = d_->models->Unload(r->name(), r->drain());
    if (draining.ok()) reply->set_draining(*draining);
    return FinishUnary(c, draining.status());
  }

  ServerUnaryReactor* Pin(CallbackServerContext* c, const PinRequest* r, PinReply*) override {
    return FinishUnary(c, d_->models->Pin(r->name(), r->pinned()));
  }

  ServerUnaryReactor* List(CallbackServerContext* c, const ListModelsRequest*,
                           ListModelsReply* reply) override {
    for (Model& m : d_->models->List()) *reply->add_models() = std::move(m);
    return FinishUnary(c, absl::OkStatus());
  }

  ServerUnaryReactor* Get(CallbackServerContext* c, const GetModelRequest* r,
                          GetModelReply* reply) override {
    return FinishUnary(c, GetPage(*r, reply));
  }

  ServerUnaryReactor* Attach(CallbackServerContext* c, const AttachRequest* r,
                             AttachReply* reply) override {
    return FinishUnary(c, Grant(*c, *r, reply));
  }

  ServerUnaryReactor* Release(CallbackServerContext* c, const ReleaseRequest* r,
                              ReleaseReply*) override {
    const auto session = d_->SessionOf(*c);
    return FinishUnary(
        c, session.ok() ? d_->models->Release(session->id, r->lease_id()) : session.status());
  }

  grpc::ServerWriteReactor<ModelEvent>* Watch(CallbackServerContext*,
                                              const WatchModelsRequest*) override {
    auto* stream = new PushStream<ModelEvent>();
    d_->models->Watch(stream->sink());
    return stream;
  }

  grpc::ServerWriteReactor<VerifyResidentEvent>* VerifyResident(
      CallbackServerContext*, const VerifyResidentRequest* r) override {
    auto* stream = new PushStream<VerifyResidentEvent>();
    const auto block = d_->models->Resident(r->name());
    if (!block.ok()) {
      stream->sink()->End(block.status());
      return stream;
    }
    worker::v1::ToWorker m;
    m.mutable_verify_model()->set_model_id((*block)->id);
    (*block)->device->slot->Call(std::move(m), {},
                                 [sink = stream->sink(), block = *block](
                                     const worker::v1::FromWorker& answer, std::vector<UniqueFd>) {
                                   VerifyResidentEvent event;
                                   if (answer.has_progress()) {
                                     event.set_bytes_done(answer.progress().bytes_done());
                                     event.set_bytes_total(answer.progress().bytes_total());
                                     sink->Push(event, "progress");
                                   } else if (answer.has_done()) {
                                     event.set_bytes_done(block->facts.packed_bytes());
                                     event.set_bytes_total(block->facts.packed_bytes());
                                     event.set_tensors_done(answer.done().tensors());
                                     *event.mutable_bad_tensors() = answer.done().bad_tensors();
                                     sink->Push(event, "");
                                     sink->End(absl::OkStatus());
                                   } else if (answer.has_error()) {
                                     sink->End(ToStatus(answer.error()));
                                   }
                                 });
    return stream;
  }

 private:
  absl::Status GetPage(const GetModelRequest& r, GetModelReply* reply) {
    GLYD_ASSIGN_OR_RETURN(*reply->mutable_model(), d_->models->Get(r.name()));
    if (r.page_size() == 0) return absl::OkStatus();
    if (r.page_size() > 1000)
      return WithReason(
          absl::InvalidArgumentError(absl::StrCat("page_size ", r.page_size(), ", at most 1000")),
          "BAD_PAGE");
    uint64_t at = 0;
    if (!r.page_token().empty() && !absl::SimpleAtoi(r.page_token(), &at))
      return WithReason(absl::InvalidArgumentError("page_token is not one that was given"),
                        "BAD_PAGE");
    GLYD_ASSIGN_OR_RETURN(ModelTable table, d_->models->Table(r.name()));
    const uint64_t packs = table.packs_size(), all = packs + table.tensors_size();
    // A page also stays well below gRPC's 4 MiB, whatever the names' lengths.
    size_t bytes = 0;
    uint64_t end = at;
    while (end < all && end - at < r.page_size() && bytes < (size_t{2} << 20)) {
      if (end < packs) {
        bytes += table.packs(static_cast<int>(end)).ByteSizeLong();
        reply->mutable_packs()->Add()->Swap(table.mutable_packs(static_cast<int>(end)));
      } else {
        bytes += table.tensors(static_cast<int>(end - packs)).ByteSizeLong();
        reply->mutable_tensors()->Add()->Swap(table.mutable_tensors(static_cast<int>(end - packs)));
      }
      ++end;
    }
    if (end < all) reply->set_next_page_token(absl::StrCat(end));
    return absl::OkStatus();
  }

  absl::Status Grant(const CallbackServerContext& c, const AttachRequest& r, AttachReply* reply) {
    GLYD_ASSIGN_OR_RETURN(const Session session, d_->SessionOf(c));
    GLYD_ASSIGN_OR_RETURN(glyd::Models::Grant grant, d_->models->Attach(session, r.name()));
    // The session may have ended since it was looked up; then its end did not see this lease.
    if (const absl::Status alive = d_->SessionOf(c).status(); !alive.ok()) {
      d_->models->EndSession(session.id);
      return alive;
    }
    reply->set_lease_id(std::move(grant.lease_id));
    reply->set_generation(d_->models->generation());
    *reply->mutable_model() = std::move(grant.model);
    return absl::OkStatus();
  }

  Daemon* const d_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewModelsService(Daemon* daemon) {
  return std::make_unique<ModelsService>(daemon);
}

}  // namespace glyd
