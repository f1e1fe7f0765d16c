#include "kernels/cuda/launch.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "kernels/cuda/kernel_list.h"
#include "kernels/linear/routes.h"

namespace glyd::gpu {
namespace {

struct Lane;  // sizes do not depend on it

enum KernelId {
#define GLYD_ID(name, ...) k_##name,
  GLYD_KERNELS(GLYD_ID)
#undef GLYD_ID
      kKernels
};

struct KernelInfo {
  const char* name;
  unsigned threads, shared_bytes;
};
constexpr KernelInfo kInfo[] = {
#define GLYD_INFO(name, Args, threads, shared_bytes, ...) {#name, threads, shared_bytes},
    GLYD_KERNELS(GLYD_INFO)
#undef GLYD_INFO
};

struct Kernel {
  cu::Function function = nullptr;
  int blocks_a_multiprocessor = 0;
};

struct Loaded {
  cu::Module module = nullptr;
  int64_t code = 0;
  int multiprocessors = 0;
  Kernel kernels[kKernels];
};

#define GLYD_CU_RETURN(call) \
  if (const cu::Result r = (call); r != cu::kSuccess) return r

std::mutex mu;
std::map<cu::Context, Loaded>* loaded = new std::map<cu::Context, Loaded>;  // guarded by mu

cu::Result Describe(const cu::Driver& d, Loaded* to) {
  cu::Device device;
  int major = 0, minor = 0;
  char name[256] = {};
  GLYD_CU_RETURN(d.CtxGetDevice(&device));
  GLYD_CU_RETURN(d.DeviceGetAttribute(&major, cu::kComputeCapabilityMajor, device));
  GLYD_CU_RETURN(d.DeviceGetAttribute(&minor, cu::kComputeCapabilityMinor, device));
  GLYD_CU_RETURN(d.DeviceGetAttribute(&to->multiprocessors, cu::kMultiprocessorCount, device));
  GLYD_CU_RETURN(d.DeviceGetName(name, sizeof name - 1, device));
  to->code = GpuCode(major, minor, name);
  return cu::kSuccess;
}

// The current context's; mu is held.
cu::Result Load(const cu::Driver& d, Loaded** out) {
  cu::Context context = nullptr;
  GLYD_CU_RETURN(d.CtxGetCurrent(&context));
  if (context == nullptr) return cu::kInvalidContext;
  Loaded& here = (*loaded)[context];
  *out = &here;
  if (here.module != nullptr) return cu::kSuccess;
  GLYD_CU_RETURN(Describe(d, &here));
  if (!HasKernels(here.code) || Image().bytes == 0) return cu::kNotSupported;
  cu::Module module = nullptr;
  GLYD_CU_RETURN(d.ModuleLoadData(&module, Image().data));
  // All of them now: a driver that loads lazily would do it in a call that may be captured into a
  // graph.
  for (int id = 0; id < kKernels; ++id) {
    const KernelInfo& info = kInfo[id];
    Kernel& k = here.kernels[id];
    GLYD_CU_RETURN(d.ModuleGetFunction(&k.function, module, info.name));
    GLYD_CU_RETURN(d.FuncSetAttribute(k.function, cu::kFuncMaxDynamicSharedSizeBytes,
                                      static_cast<int>(info.shared_bytes)));
    GLYD_CU_RETURN(d.OccupancyMaxActiveBlocksPerMultiprocessor(
        &k.blocks_a_multiprocessor, k.function, static_cast<int>(info.threads), info.shared_bytes));
  }
  here.module = module;
  return cu::kSuccess;
}

cu::Result Get(const cu::Driver& d, int id, Kernel* kernel, int* multiprocessors) {
  const std::lock_guard<std::mutex> lock(mu);
  Loaded* here = nullptr;
  GLYD_CU_RETURN(Load(d, &here));
  *kernel = here->kernels[id];
  *multiprocessors = here->multiprocessors;
  return kernel->blocks_a_multiprocessor == 0 ? cu::kLaunchOutOfResources : cu::kSuccess;
}

// A context that was destroyed may have left its address to a new one.
void Forget(const cu::Driver& d) {
  const std::lock_guard<std::mutex> lock(mu);
  cu::Context context = nullptr;
  if (d.CtxGetCurrent(&context) == cu::kSuccess) loaded->erase(context);
}

// `grid` gets the blocks that are at once in the GPU and gives those to launch.
template <typename Args, typename Grid>
cu::Result Launch(const cu::Driver& d, int id, const Args& args, cu::Stream stream,
                  const Grid& grid) {
  for (int attempt = 0;; ++attempt) {
    Kernel kernel;
    int multiprocessors = 0;
    GLYD_CU_RETURN(Get(d, id, &kernel, &multiprocessors));
    const int64_t blocks = grid(int64_t{kernel.blocks_a_multiprocessor} * multiprocessors);
    if (blocks <= 0) return cu::kSuccess;
    if (blocks > INT32_MAX) return cu::kInvalidValue;
    void* parameters[] = {const_cast<Args*>(&args)};
    const cu::Result r =
        d.LaunchKernel(kernel.function, static_cast<unsigned>(blocks), 1, 1, kInfo[id].threads, 1,
                       1, kInfo[id].shared_bytes, stream, parameters, nullptr);
    if (attempt > 0 || (r != cu::kInvalidHandle && r != cu::kNotFound)) return r;
    Forget(d);
  }
}

// Of the step kernel: its partial sums are as many as blocks, and a workspace is asked for where no
// GPU is known.
constexpr int64_t kStepMaxGrid = 512;

int64_t StepGrid(int64_t row_blocks, int64_t row_steps) {
  return std::min(row_blocks * row_steps, kStepMaxGrid);
}

// Of the prompt kernel: parts of K, so that small products fill a GPU too.
int PromptSplits(int64_t row_blocks, int64_t row_steps, int64_t m) {
  const int64_t tiles = PromptTiles(row_blocks, m);
  return static_cast<int>(std::clamp<int64_t>(256 / std::max<int64_t>(tiles, 1), 1,
                                              std::min<int64_t>(8, row_steps / 4)));
}

}  // namespace

cu::Result Prepare(const cu::Driver& driver, int64_t* code) {
  const std::lock_guard<std::mutex> lock(mu);
  Loaded* here = nullptr;
  const cu::Result r = Load(driver, &here);
  if (code != nullptr && here != nullptr) *code = here->code;
  return r;
}

cu::Result LaunchUnpack(const cu::Driver& driver, Layout layout, const UnpackArgs& args,
                        int64_t warps, cu::Stream stream) {
  const int64_t blocks =
      (args.row0 + args.rows + kStepRows - 1) / kStepRows - args.row0 / kStepRows;
  // Experts that a plan does not hit are not known here: their blocks find nothing to do.
  const int64_t runs = blocks * UnpackRunsARowBlock(args.pack.row_steps);
  return Launch(driver, layout == Layout::kMma ? k_glyd_mma_unpack : k_glyd_mma12_unpack, args,
                stream, [&](int64_t room) {
                  if (args.rows == 0) return int64_t{0};
                  if (warps > 0) room = std::min(room, (warps + kUnpackWarps - 1) / kUnpackWarps);
                  return std::min(room, (runs + kUnpackWarps - 1) / kUnpackWarps);
                });
}

size_t StepWorkspaceBytes(int64_t row_blocks, int64_t row_steps, int64_t m) {
  return static_cast<size_t>(2 * StepGrid(row_blocks, row_steps) * m * kStepRows) * sizeof(float);
}

cu::Result LaunchStep(const cu::Driver& driver, Layout layout, StepArgs args, void* workspace,
                      cu::Stream stream) {
  if (args.m == 0) return cu::kSuccess;
  args.partial = static_cast<float*>(workspace);
  constexpr int kMma[] = {k_glyd_mma_step1, k_glyd_mma_step2, k_glyd_mma_step4, k_glyd_mma_step8};
  constexpr int kMma12[] = {k_glyd_mma12_step1, k_glyd_mma12_step2, k_glyd_mma12_step4,
                            k_glyd_mma12_step8};
  const int size = args.m <= 8 ? 0 : args.m <= 16 ? 1 : args.m <= 32 ? 2 : 3;
  return Launch(
      driver, (layout == Layout::kMma ? kMma : kMma12)[size], args, stream,
      [&](int64_t room) { return std::min(room, StepGrid(args.row_blocks, args.pack.row_steps)); });
}

size_t PromptWorkspaceBytes(int64_t row_blocks, int64_t row_steps, int64_t m) {
  const int splits = PromptSplits(row_blocks, row_steps, m);
  if (splits == 1) return 0;
  return static_cast<size_t>(PromptTiles(row_blocks, m) * splits * kPromptTokens * kPromptRows) *
         sizeof(float);
}

cu::Result LaunchPrompt(const cu::Driver& driver, Layout layout, PromptArgs args, void* workspace,
                        cu::Stream stream) {
  if (args.m == 0) return cu::kSuccess;
  args.partial = static_cast<float*>(workspace);
  args.splits = PromptSplits(args.row_blocks, args.pack.row_steps, args.m);
  return Launch(driver, layout == Layout::kMma ? k_glyd_mma_prompt : k_glyd_mma12_prompt, args,
                stream,
                [&](int64_t) { return PromptTiles(args.row_blocks, args.m) * args.splits; });
}

cu::Result LaunchRoute(const cu::Driver& driver, const RouteArgs& args, cu::Stream stream) {
  return Launch(driver, k_glyd_moe_route, args, stream, [](int64_t) { return int64_t{1}; });
}

size_t MoeWorkspaceBytes(int64_t pairs, int64_t rows) {
  return static_cast<size_t>(pairs * rows) * sizeof(float);
}

cu::Result LaunchMoe(const cu::Driver& driver, Layout layout, MoeArgs args, const void* weights,
                     bool weights_are_fp32, void* workspace, cu::Stream stream) {
  const int64_t rows = args.row_blocks * kStepRows, tokens = args.pairs / args.each;
  args.pair_sums = weights == nullptr ? nullptr : static_cast<float*>(workspace);
  // Experts that are hit at most; one with few pairs wants small tiles of x.
  const int64_t hits = std::min<int64_t>(args.experts, args.pairs);
  const bool small = args.pairs <= 8 * hits;
  const int id = layout == Layout::kMma ? (small ? k_glyd_mma_moe1 : k_glyd_mma_moe4)
                                        : (small ? k_glyd_mma12_moe1 : k_glyd_mma12_moe4);
  const int64_t blocks = args.act == 0 ? args.row_blocks : args.row_blocks / 2;
  GLYD_CU_RETURN(Launch(driver, id, args, stream, [&](int64_t) { return hits * blocks; }));
  if (weights == nullptr) return cu::kSuccess;
  const CombineArgs combine = {args.pair_sums, weights, weights_are_fp32, tokens, args.each,
                               rows,           args.y};
  return Launch(driver, k_glyd_moe_combine, combine, stream, [&](int64_t room) {
    return std::min(room, (tokens * rows + kCombineThreads - 1) / kCombineThreads);
  });
}

cu::Result LaunchHold(const cu::Driver& driver, int64_t nanoseconds, cu::Stream stream) {
  return Launch(driver, k_glyd_hold, HoldArgs{nanoseconds}, stream,
                [](int64_t) { return int64_t{1}; });
}

}  // namespace glyd::gpu
