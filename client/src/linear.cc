#include "glyd/linear.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/attached.h"
#include "client/src/table.h"
#include "kernels/linear/linear.h"

namespace glyd {
namespace {

absl::Status CheckLength(const ModelPack& pack, absl::string_view what, uint64_t have, uint64_t a,
                         uint64_t b) {
  uint64_t want;
  if (CheckedMul(a, b, &want) && have == want) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pack \"", Printable(pack.name), "\" [", pack.rows,
                                                 ", ", pack.cols, "]: ", what, " of ", have,
                                                 " elements, ", a, " * ", b, " expected"));
}

absl::StatusOr<v1::LinearReply> Run(const internal::AttachedModel& attached,
                                    v1::LinearRequest& request, absl::string_view pack, uint64_t m,
                                    bool bias) {
  GLYD_ASSIGN_OR_RETURN(const internal::AttachedModel::Lease lease, attached.lease());
  request.set_lease_id(lease.id);
  request.set_pack(std::string(pack));
  request.set_m(m);
  request.set_bias(bias);
  v1::LinearReply reply;
  const internal::Connection& c = *attached.connection();
  GLYD_RETURN_IF_ERROR(
      c.Call(c.linear(), &v1::Linear::Stub::Run, request, &reply, lease.session.get()));
  return reply;
}

void SetPlace(const ArenaPlace& place, v1::ArenaRange* range) {
  range->set_arena_id(place.arena->id());
  range->set_offset(place.offset);
}

}  // namespace

absl::Status LinearInProcess(const ModelPack& pack, absl::Span<const uint16_t> x, uint64_t m,
                             absl::Span<const uint16_t> bias, absl::Span<uint16_t> y, int threads) {
  if (pack.checked == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("pack \"", Printable(pack.name), "\" is not one of an attached model"));
  const PackView& view = pack.checked->view();
  GLYD_RETURN_IF_ERROR(CheckLength(pack, "x", x.size(), m, view.meta.cols));
  GLYD_RETURN_IF_ERROR(CheckLength(pack, "y", y.size(), m, view.meta.rows));
  if (!bias.empty())
    GLYD_RETURN_IF_ERROR(CheckLength(pack, "bias", bias.size(), 1, view.meta.rows));
  GLYD_RETURN_IF_ERROR(pack.checked->Check());
  LinearArgs args;
  args.pack = view;
  args.x = x.data();
  args.m = m;
  args.bias = bias.empty() ? nullptr : bias.data();
  args.y = y.data();
  return LinearOnHost(args, threads);
}

absl::StatusOr<DaemonProduct> LinearByDaemon(const Model& model, absl::string_view pack, uint64_t m,
                                             ArenaPlace x, ArenaPlace y, bool bias) {
  if (x.arena == nullptr || y.arena == nullptr)
    return absl::InvalidArgumentError("a product by the daemon needs an arena for x and one for y");
  v1::LinearRequest request;
  SetPlace(x, request.mutable_x_arena());
  SetPlace(y, request.mutable_y_arena());
  GLYD_ASSIGN_OR_RETURN(const v1::LinearReply reply,
                        Run(internal::Peek::At(model), request, pack, m, bias));
  return DaemonProduct{absl::Nanoseconds(reply.device_nanoseconds())};
}

absl::StatusOr<DaemonProduct> LinearByDaemon(const Model& model, absl::string_view pack, uint64_t m,
                                             absl::Span<const uint16_t> x, absl::Span<uint16_t> y,
                                             bool bias) {
  const ModelPack* p = model.FindPack(pack);
  if (p == nullptr)
    return absl::NotFoundError(absl::StrCat("model \"", Printable(model.info().name),
                                            "\" has no pack \"", Printable(pack), "\""));
  GLYD_RETURN_IF_ERROR(CheckLength(*p, "x", x.size(), m, p->cols));
  GLYD_RETURN_IF_ERROR(CheckLength(*p, "y", y.size(), m, p->rows));
  v1::LinearRequest request;
  request.set_x_inline(x.data(), x.size() * 2);
  GLYD_ASSIGN_OR_RETURN(const v1::LinearReply reply,
                        Run(internal::Peek::At(model), request, pack, m, bias));
  if (reply.y_inline().size() != y.size() * 2)
    return absl::DataLossError(absl::StrCat("pack \"", Printable(pack), "\": the daemon answered ",
                                            reply.y_inline().size(), " bytes, ", y.size() * 2,
                                            " expected"));
  if (!y.empty()) std::memcpy(y.data(), reply.y_inline().data(), y.size() * 2);
  return DaemonProduct{absl::Nanoseconds(reply.device_nanoseconds())};
}

}  // namespace glyd
