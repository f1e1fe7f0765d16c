#ifndef GLYD_LINEAR_H_
#define GLYD_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "glyd/arena.h"
#include "glyd/model.h"

namespace glyd {

// Products y = x W^T + bias with a packed matrix W [O, K]: x [M, K] and y [M, O] are bf16,
// row-major, contiguous. In the process and by the daemon the same kernels run and give the same
// bits. All are thread-safe.

// Here, with `threads` threads, on mapped weights. `bias` is O long or empty. y overlaps neither x
// nor bias. InvalidArgument where a length is not the one that m and the pack's shape give;
// DataLoss for a pack that does not decode.
absl::Status LinearInProcess(const ModelPack& pack, absl::Span<const uint16_t> x, uint64_t m,
                             absl::Span<const uint16_t> bias, absl::Span<uint16_t> y, int threads);

struct DaemonProduct {
  absl::Duration device_time;  // of the product itself, as the daemon measured it
};

// By the daemon, x and y in arenas got through the model's Client; y is there when this returns.
// `bias`: add the biases that the save holds for the pack's members (FailedPrecondition where it
// holds none).
absl::StatusOr<DaemonProduct> LinearByDaemon(const Model& model, absl::string_view pack, uint64_t m,
                                             ArenaPlace x, ArenaPlace y, bool bias = false);

// By the daemon, x and y in the messages: at most 1 MiB each.
absl::StatusOr<DaemonProduct> LinearByDaemon(const Model& model, absl::string_view pack, uint64_t m,
                                             absl::Span<const uint16_t> x, absl::Span<uint16_t> y,
                                             bool bias = false);

}  // namespace glyd

#endif  // GLYD_LINEAR_H_
