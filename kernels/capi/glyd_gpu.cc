#include "kernels/capi/glyd_gpu.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/linear/routes.h"

// In the order that glyd_gpu.h tells: arguments, then the driver, then the GPU.

namespace {

using glyd::Layout;
using glyd::Route;
using glyd::gpu::DevicePack;
namespace cu = glyd::cu;

constexpr int kInvalid = cu::kInvalidValue, kUnsupported = cu::kNotSupported;
constexpr int64_t kStepMaxRows = 64;
constexpr uint32_t kMaxBase = 120;
// The largest number of weights: sizes in bytes and steps stay far below 2^63.
constexpr int64_t kMaxWeights = int64_t{1} << 41;

bool Misaligned(const void* p, uintptr_t to) {
  return (reinterpret_cast<uintptr_t>(p) & (to - 1)) != 0;
}

struct Pack {
  Layout layout;
  const uint8_t* data;
  const void* side;
  const int32_t* base;
  const uint32_t* codes;

  bool Good() const {
    if (data == nullptr || side == nullptr || base == nullptr || codes == nullptr) return false;
    if (Misaligned(data, 16) || Misaligned(base, 4)) return false;
    if (layout == Layout::kMma) return true;
    if (Misaligned(side, 4)) return false;
    // Before 0.25 the four words were four symbols.
    const uint32_t hb = codes[0] & 0xFF;
    return codes[0] == hb * 0x01010101u && hb <= kMaxBase && codes[1] == 0 && codes[2] == 0 &&
           codes[3] == 0;
  }
  DevicePack View(int64_t K) const {
    DevicePack d = {
        data, static_cast<const uint8_t*>(side), base, {codes[0], 0, 0}, K / glyd::kStepCols};
    if (layout == Layout::kMma) std::copy_n(codes, 3, d.codes);
    return d;
  }
};

bool GoodShape(int64_t O, int64_t K, int64_t columns = glyd::kStepCols) {
  return O > 0 && K > 0 && O % glyd::kStepRows == 0 && K % columns == 0 && O <= kMaxWeights / K;
}
bool GoodRows(int64_t M, int64_t K, int64_t O) {
  return M >= 0 && M <= kMaxWeights / K && M <= kMaxWeights / O;
}

struct Product {
  Pack pack;
  int64_t O, K;
  const uint16_t* x;
  int64_t M;
  const uint16_t* bias;
  uint16_t* y;
  void* workspace;
  size_t workspace_bytes;
  int* done;
  void* stream;

  // `columns` divides K, x is `x_align` aligned, `needs` bytes are in the workspace.
  bool Good(int64_t columns, uintptr_t x_align) const {
    return GoodShape(O, K, columns) && GoodRows(M, K, O) && pack.Good() &&
           (M == 0 || (x != nullptr && y != nullptr)) && done != nullptr &&
           !Misaligned(x, x_align) && !Misaligned(y, 2) && !Misaligned(bias, 2) &&
           !Misaligned(done, 4) && !Misaligned(workspace, 16);
  }
  bool Holds(size_t needs) const {
    return workspace_bytes >= needs && (needs == 0 || workspace != nullptr);
  }
  int64_t row_blocks() const { return O / glyd::kStepRows; }
  int64_t row_steps() const { return K / glyd::kStepCols; }
  size_t StepBytes() const { return glyd::gpu::StepWorkspaceBytes(row_blocks(), row_steps(), M); }
  size_t PromptBytes() const {
    return glyd::gpu::PromptWorkspaceBytes(row_blocks(), row_steps(), M);
  }
};

// The driver, or the result that says why there is none.
int Driver(const cu::Driver** driver) {
  const cu::Driver::Opened& opened = cu::Driver::Open();
  *driver = opened.driver;
  return opened.result;
}

const glyd::RouteLimits& Limits() {
  static const glyd::RouteLimits limits =
      glyd::RouteLimits::From([](const char* name) { return std::getenv(name); });
  return limits;
}

int Step(const Product& p) {
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchStep(
      *d, p.pack.layout, {p.pack.View(p.K), p.row_blocks(), p.x, p.M, p.bias, p.y, nullptr, p.done},
      p.workspace, static_cast<cu::Stream>(p.stream));
}

int Prompt(const Product& p) {
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchPrompt(
      *d, p.pack.layout,
      {p.pack.View(p.K), p.row_blocks(), p.x, p.M, p.bias, p.y, 1, nullptr, p.done}, p.workspace,
      static_cast<cu::Stream>(p.stream));
}

int Gemm(const Product& p) {
  if (p.M > kStepMaxRows || !p.Good(glyd::kStepCols, 2) || !p.Holds(p.StepBytes())) return kInvalid;
  return Step(p);
}

int GemmBig(const Product& p) {
  if (!p.Good(64, 16) || !p.Holds(p.PromptBytes())) return kInvalid;
  return Prompt(p);
}

// mid and wg: `gpu` (0: any) is the only one that has it.
int GemmByEither(const Product& p, int64_t only) {
  const bool step = p.M <= kStepMaxRows;
  if (!p.Good(64, 16) || Misaligned(p.pack.side, 16) ||
      !p.Holds(step ? p.StepBytes() : p.PromptBytes()))
    return kInvalid;
  if (only != 0) {
    const cu::Driver* d = nullptr;
    int64_t gpu = 0;
    if (const int r = Driver(&d); r != 0) return r;
    if (const int r = glyd::gpu::Prepare(*d, &gpu); r != 0) return r;
    if (gpu % 1000 != only) return kUnsupported;
  }
  return step ? Step(p) : Prompt(p);
}

// What a route runs here.
bool RunsStep(int64_t route, int64_t M) {
  return route == static_cast<int>(Route::kGemm) ||
         ((route == static_cast<int>(Route::kMid) || route == static_cast<int>(Route::kWg)) &&
          M <= kStepMaxRows);
}

bool GoodRoute(Layout layout, int64_t route, int64_t M) {
  if (route < -1 || route > static_cast<int>(Route::kAhead)) return false;
  if (layout == Layout::kMma && (route == 2 || route == 3)) return false;
  return route != static_cast<int>(Route::kGemm) || M <= kStepMaxRows;
}

// What the route's kernel wants beyond any.
bool GoodFor(const Product& p, int64_t route) {
  if (route != static_cast<int>(Route::kGemm) && Misaligned(p.x, 16)) return false;
  if ((route == static_cast<int>(Route::kMid) || route == static_cast<int>(Route::kWg)) &&
      Misaligned(p.pack.side, 16))
    return false;
  if (RunsStep(route, p.M)) return p.Holds(p.StepBytes());
  return p.K % 64 != 0 || p.Holds(p.PromptBytes());  // else refused below
}

int Linear(const Product& p, int64_t route) {
  if (!p.Good(glyd::kStepCols, 2) || !GoodRoute(p.pack.layout, route, p.M) ||
      (route != -1 && !GoodFor(p, route)))
    return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  int64_t gpu = 0;
  if (route == -1 || route == static_cast<int>(Route::kWg)) {
    if (const int r = glyd::gpu::Prepare(*d, &gpu); r != 0) return r;
    if (route == -1) {
      route = static_cast<int>(ChooseRoute(p.pack.layout, gpu, p.K, p.M, Limits()).route);
      if (!GoodFor(p, route)) return kInvalid;
    } else if (gpu % 1000 != 90) {
      return kUnsupported;
    }
  }
  // GLYD_DEC_MIN and K can ask for a kernel that this K does not go through.
  if (route != static_cast<int>(Route::kGemm) && p.K % 64 != 0) return kUnsupported;
  return RunsStep(route, p.M) ? Step(p) : Prompt(p);
}

int Workspace(int64_t O, int64_t K, int64_t M, int64_t columns, bool step, bool prompt,
              size_t* bytes) {
  if (!GoodShape(O, K, columns) || !GoodRows(M, K, O) || bytes == nullptr) return kInvalid;
  const int64_t row_blocks = O / glyd::kStepRows, row_steps = K / glyd::kStepCols;
  *bytes = std::max(
      step && M <= kStepMaxRows ? glyd::gpu::StepWorkspaceBytes(row_blocks, row_steps, M) : 0,
      prompt && K % 64 == 0 ? glyd::gpu::PromptWorkspaceBytes(row_blocks, row_steps, M) : 0);
  return 0;
}

int LinearWorkspace(Layout layout, int64_t O, int64_t K, int64_t M, int64_t route, size_t* bytes) {
  if (M >= 0 && !GoodRoute(layout, route, M)) return kInvalid;
  // Without a GPU the route is not known: room for either kernel.
  return Workspace(O, K, M, glyd::kStepCols, route == -1 || RunsStep(route, M),
                   route == -1 || !RunsStep(route, M), bytes);
}

int QueryRoute(Layout layout, int64_t gpu, int64_t O, int64_t K, int64_t M, int* route,
               int64_t* last) {
  if (O <= 0 || K <= 0 || M < 0 || route == nullptr || gpu < 0) return kInvalid;
  if (!glyd::HasKernels(gpu)) return kUnsupported;
  const glyd::RouteChoice choice = ChooseRoute(layout, gpu, K, M, Limits());
  *route = static_cast<int>(choice.route);
  if (last != nullptr) *last = choice.last;
  return 0;
}

int Unpack(const Pack& pack, int64_t K, int64_t row0, int64_t rows, uint16_t* out, int64_t warps,
           void* stream) {
  if (K <= 0 || K % glyd::kStepCols != 0 || row0 < 0 || rows < 0 || row0 > kMaxWeights / K ||
      rows > kMaxWeights / K - row0 || !pack.Good() || (rows > 0 && out == nullptr) ||
      Misaligned(out, 2))
    return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchUnpack(*d, pack.layout, {pack.View(K), row0, rows, out}, warps,
                                 static_cast<cu::Stream>(stream));
}

bool GoodExperts(int64_t E, int64_t O, int64_t K) {
  return E > 0 && E <= glyd::gpu::kMaxExperts && GoodShape(O, K) && E <= kMaxWeights / (O * K);
}
// T tokens with k experts each.
bool GoodPairs(int64_t T, int64_t k, int64_t O, int64_t K) {
  return T >= 0 && k > 0 && T <= INT32_MAX / k && GoodRows(T * k, K, O);
}

struct Experts {
  Pack pack;
  int64_t E, O, K;
  const uint16_t* x;
  int64_t T, k, gather;
  const int32_t* plan;
  int64_t act;
  const uint16_t* bias;
  const void* weights;
  int64_t weights_are_fp32;
  const int64_t* ids;
  uint16_t* y;
  void* workspace;
  size_t workspace_bytes;
  int* done;
  void* stream;

  bool Good() const {
    return GoodExperts(E, O, K) && GoodPairs(T, k, O, K) && (gather == 0 || gather == 1) &&
           act >= 0 && act <= 2 && (act == 0 || (O % 128 == 0 && weights == nullptr)) &&
           pack.Good() && plan != nullptr && done != nullptr &&
           (T == 0 || (x != nullptr && y != nullptr)) && (weights == nullptr || ids != nullptr) &&
           !Misaligned(x, 2) && !Misaligned(y, 2) && !Misaligned(bias, 2) && !Misaligned(plan, 4) &&
           !Misaligned(weights, weights_are_fp32 ? 4 : 2) && !Misaligned(workspace, 16) &&
           (weights == nullptr || T == 0 ||
            (workspace != nullptr && workspace_bytes >= glyd::gpu::MoeWorkspaceBytes(T * k, O)));
  }
};

int Moe(const Experts& e) {
  if (!e.Good()) return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchMoe(
      *d, e.pack.layout,
      {e.pack.View(e.K), static_cast<int>(e.E), e.O / glyd::kStepRows, e.x, e.T * e.k, e.k,
       e.gather != 0, e.plan, static_cast<int>(e.act), e.bias, e.y, nullptr},
      e.weights, e.weights_are_fp32 != 0, e.workspace, static_cast<cu::Stream>(e.stream));
}

int MoeWorkspace(int64_t E, int64_t O, int64_t K, int64_t T, int64_t k, int64_t act,
                 int64_t weighted, size_t* bytes) {
  if (!GoodExperts(E, O, K) || !GoodPairs(T, k, O, K) || act < 0 || act > 2 ||
      (act > 0 && (O % 128 != 0 || weighted)) || bytes == nullptr)
    return kInvalid;
  *bytes = weighted ? glyd::gpu::MoeWorkspaceBytes(T * k, O) : 0;
  return 0;
}

int MoeUnpack(const Pack& pack, int64_t E, int64_t O, int64_t K, int64_t P, const int32_t* plan,
              uint16_t* out, void* stream) {
  if (!GoodExperts(E, O, K) || P < 0 || P > INT32_MAX || !pack.Good() || plan == nullptr ||
      Misaligned(plan, 4) || out == nullptr || Misaligned(out, 2))
    return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  if (P == 0) return 0;
  return glyd::gpu::LaunchUnpack(*d, pack.layout,
                                 {pack.View(K), 0, E * O, out, plan, O / glyd::kStepRows}, 0,
                                 static_cast<cu::Stream>(stream));
}

}  // namespace

extern "C" {

int glyd_gpu_api_version(void) { return 5; }
int glyd_gpu_cuda_version(void) { return glyd::gpu::Image().cuda_version; }

const char* glyd_gpu_error_string(int result) {
  switch (result) {
    case cu::kSuccess:
      return "cudaSuccess";
    case cu::kInvalidValue:
      return "cudaErrorInvalidValue";
    case cu::kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case cu::kNotInitialized:
      return "cudaErrorInitializationError";
    case cu::kInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cu::kNoDevice:
      return "cudaErrorNoDevice";
    case cu::kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cu::kInvalidImage:
      return "cudaErrorInvalidKernelImage";
    case cu::kInvalidContext:
      return "cudaErrorDeviceUninitialized";
    case cu::kNoBinaryForGpu:
      return "cudaErrorNoKernelImageForDevice";
    case cu::kInvalidHandle:
      return "cudaErrorInvalidResourceHandle";
    case cu::kNotFound:
      return "cudaErrorSymbolNotFound";
    case cu::kNotReady:
      return "cudaErrorNotReady";
    case cu::kIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cu::kLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cu::kLaunchTimeout:
      return "cudaErrorLaunchTimeout";
    case cu::kMisalignedAddress:
      return "cudaErrorMisalignedAddress";
    case cu::kLaunchFailed:
      return "cudaErrorLaunchFailure";
    case cu::kNotPermitted:
      return "cudaErrorNotPermitted";
    case cu::kNotSupported:
      return "cudaErrorNotSupported";
    case cu::kUnknown:
      return "cudaErrorUnknown";
    default:
      return "another CUDA error";
  }
}

int glyd_gpu_gpu(int64_t* gpu) {
  if (gpu == nullptr) return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::Prepare(*d, gpu);
}

int glyd_gpu_hold(int64_t nanoseconds, void* stream) {
  if (nanoseconds < 0) return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchHold(*d, nanoseconds, static_cast<cu::Stream>(stream));
}

int glyd_gpu_moe_route(const int64_t* ids, int64_t P, int64_t E, int32_t* plan, void* stream) {
  if (P < 0 || P > INT32_MAX || E <= 0 || E > glyd::gpu::kMaxExperts || plan == nullptr ||
      Misaligned(plan, 4) || (P > 0 && ids == nullptr) || Misaligned(ids, 8))
    return kInvalid;
  const cu::Driver* d = nullptr;
  if (const int r = Driver(&d); r != 0) return r;
  return glyd::gpu::LaunchRoute(*d, {ids, P, static_cast<int>(E), plan},
                                static_cast<cu::Stream>(stream));
}

// PACK is the layout's first four parameters, `pack` a Pack of them.
#define GLYD_LAYOUT(L, kLayout, PACK, pack)                                                        \
  int glyd_gpu_##L##_route(int64_t gpu, int64_t O, int64_t K, int64_t M, int* route,               \
                           int64_t* last) {                                                        \
    return QueryRoute(kLayout, gpu, O, K, M, route, last);                                         \
  }                                                                                                \
  int glyd_gpu_##L##_unpack(PACK, int64_t K, int64_t row0, int64_t rows, uint16_t* out,            \
                            int64_t warps, void* stream) {                                         \
    return Unpack(pack, K, row0, rows, out, warps, stream);                                        \
  }                                                                                                \
  int glyd_gpu_##L##_gemm(PACK, int64_t O, int64_t K, const uint16_t* x, int64_t M,                \
                          const uint16_t* bias, uint16_t* y, void* workspace,                      \
                          size_t workspace_bytes, int* done, void* stream) {                       \
    return Gemm({pack, O, K, x, M, bias, y, workspace, workspace_bytes, done, stream});            \
  }                                                                                                \
  int glyd_gpu_##L##_gemm_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes) {              \
    return M > kStepMaxRows ? kInvalid : Workspace(O, K, M, glyd::kStepCols, true, false, bytes);  \
  }                                                                                                \
  int glyd_gpu_##L##_gemm_big(PACK, int64_t O, int64_t K, const uint16_t* x, int64_t M,            \
                              const uint16_t* bias, uint16_t* y, int64_t, void* workspace,         \
                              size_t workspace_bytes, int* done, void* stream) {                   \
    return GemmBig({pack, O, K, x, M, bias, y, workspace, workspace_bytes, done, stream});         \
  }                                                                                                \
  int glyd_gpu_##L##_gemm_big_workspace(int64_t O, int64_t K, int64_t M, int64_t, size_t* bytes) { \
    return Workspace(O, K, M, 64, false, true, bytes);                                             \
  }                                                                                                \
  int glyd_gpu_##L##_linear(PACK, int64_t O, int64_t K, const uint16_t* x, int64_t M,              \
                            const uint16_t* bias, uint16_t* y, int64_t route, void* workspace,     \
                            size_t workspace_bytes, int* done, void* stream) {                     \
    return Linear({pack, O, K, x, M, bias, y, workspace, workspace_bytes, done, stream}, route);   \
  }                                                                                                \
  int glyd_gpu_##L##_linear_workspace(int64_t O, int64_t K, int64_t M, int64_t route,              \
                                      size_t* bytes) {                                             \
    return LinearWorkspace(kLayout, O, K, M, route, bytes);                                        \
  }                                                                                                \
  int glyd_gpu_##L##_moe(PACK, int64_t E, int64_t O, int64_t K, const uint16_t* x, int64_t T,      \
                         int64_t k, int64_t gather, const int32_t* plan, int64_t act,              \
                         const uint16_t* bias, const void* weights, int64_t weights_are_fp32,      \
                         const int64_t* ids, uint16_t* y, void* workspace, size_t workspace_bytes, \
                         int* done, void* stream) {                                                \
    return Moe({pack, E, O, K, x, T, k, gather, plan, act, bias, weights, weights_are_fp32, ids,   \
                y, workspace, workspace_bytes, done, stream});                                     \
  }                                                                                                \
  int glyd_gpu_##L##_moe_workspace(int64_t E, int64_t O, int64_t K, int64_t T, int64_t k,          \
                                   int64_t act, int64_t weighted, size_t* bytes) {                 \
    return MoeWorkspace(E, O, K, T, k, act, weighted, bytes);                                      \
  }                                                                                                \
  int glyd_gpu_##L##_moe_unpack(PACK, int64_t E, int64_t O, int64_t K, int64_t P,                  \
                                const int32_t* plan, uint16_t* out, void* stream) {                \
    return MoeUnpack(pack, E, O, K, P, plan, out, stream);                                         \
  }

#define GLYD_MMA_PACK \
  const uint8_t *data, const uint8_t *blocks, const int32_t *block_base, const uint32_t *tiers
#define GLYD_MMA12_PACK \
  const uint8_t *data, const uint32_t *exc, const int32_t *exc_base, const uint32_t *sym
GLYD_LAYOUT(mma, Layout::kMma, GLYD_MMA_PACK, (Pack{Layout::kMma, data, blocks, block_base, tiers}))
GLYD_LAYOUT(mma12, Layout::kMma12, GLYD_MMA12_PACK,
            (Pack{Layout::kMma12, data, exc, exc_base, sym}))

int glyd_gpu_mma12_gemm_mid(GLYD_MMA12_PACK, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                            const uint16_t* bias, uint16_t* y, void* workspace,
                            size_t workspace_bytes, int* done, void* stream) {
  return GemmByEither({Pack{Layout::kMma12, data, exc, exc_base, sym}, O, K, x, M, bias, y,
                       workspace, workspace_bytes, done, stream},
                      0);
}
int glyd_gpu_mma12_gemm_wg(GLYD_MMA12_PACK, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                           const uint16_t* bias, uint16_t* y, void* workspace,
                           size_t workspace_bytes, int* done, void* stream) {
  return GemmByEither({Pack{Layout::kMma12, data, exc, exc_base, sym}, O, K, x, M, bias, y,
                       workspace, workspace_bytes, done, stream},
                      90);
}
int glyd_gpu_mma12_gemm_mid_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes) {
  return Workspace(O, K, M, 64, M <= kStepMaxRows, M > kStepMaxRows, bytes);
}
int glyd_gpu_mma12_gemm_wg_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes) {
  return glyd_gpu_mma12_gemm_mid_workspace(O, K, M, bytes);
}

#define GLYD_ABSENT(name) \
  int glyd_gpu_##name(void) { return kUnsupported; }
GLYD_ABSENT(lane_bits)
GLYD_ABSENT(write_codes)
GLYD_ABSENT(decode)
GLYD_ABSENT(gemv)
GLYD_ABSENT(fast_gemv)
GLYD_ABSENT(fast_decode)
GLYD_ABSENT(fast_gemm)
GLYD_ABSENT(fast_gemm_workspace)
GLYD_ABSENT(fast_bgemv)
GLYD_ABSENT(fast_bgemv_workspace)
GLYD_ABSENT(attn_decode)
GLYD_ABSENT(attn_decode_workspace)

}  // extern "C"
