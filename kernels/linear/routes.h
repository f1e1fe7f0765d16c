#ifndef GLYD_KERNELS_LINEAR_ROUTES_H_
#define GLYD_KERNELS_LINEAR_ROUTES_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "kernels/format/step.h"

namespace glyd {

// Which kernel takes a product on a GPU: the table of the C API, version 5 (docs/c-api.md).
enum class Route : int {
  kDecode = 0,  // decode W, then the caller's own product
  kGemm = 1,    // the step kernel
  kMid = 2,
  kWg = 3,     // Hopper: bulk copies and wgmma
  kBig = 4,    // the prompt kernel
  kAhead = 5,  // kDecode with the decode run ahead
};

// What the environment may move. A limit that is never reached is INT64_MAX.
struct RouteLimits {
  int64_t wg_min = 17, wg_max = 1024;  // M that kWg takes, compute capability 9.0
  int64_t mid_min = 17;                // first M of kMid
  int64_t decode_min = INT64_MAX;      // mma12: from this M on kGemm and kBig are kDecode

  // GLYD_WG_MIN, GLYD_WG_MAX, GLYD_MID_MIN, GLYD_DEC_MIN, as `variable` (getenv) gives them:
  // integers of base 10 that fit 64 bits; what is anything else counts as unset.
  static RouteLimits From(const std::function<const char*(const char*)>& variable);
};

// Compute capability * 10 (9.0 is 90), plus 1000 for a GeForce, 2000 for an A10 by name.
int64_t GpuCode(int major, int minor, std::string_view name);

// Whether there are kernels for a GPU of this code at all: compute capability 8.0 or later.
bool HasKernels(int64_t gpu);

struct RouteChoice {
  Route route;
  int64_t
      last;  // the largest M, from this one on, that takes it with no other between; INT64_MAX: all
};

// For a GPU that HasKernels, K > 0, M >= 0. O does not matter.
RouteChoice ChooseRoute(Layout layout, int64_t gpu, int64_t k, int64_t m,
                        const RouteLimits& limits);

}  // namespace glyd

#endif  // GLYD_KERNELS_LINEAR_ROUTES_H_
