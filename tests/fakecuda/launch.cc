#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/fakecuda/fake.h"

using namespace fakecuda;

namespace fakecuda {

std::vector<FakeKernel>& Kernels() {
  static auto* kernels = new std::vector<FakeKernel>;
  return *kernels;
}

}  // namespace fakecuda

namespace {

constexpr int kSharedBytes = 48 << 10, kSharedBytesOptin = 227 << 10;

thread_local sigjmp_buf* running = nullptr;  // the kernel of this thread
struct sigaction before[2];

void OnFault(int signal, siginfo_t* info, void* context) {
  if (running != nullptr) siglongjmp(*running, signal);
  const struct sigaction& next = before[signal == SIGBUS];
  if ((next.sa_flags & SA_SIGINFO) != 0) return next.sa_sigaction(signal, info, context);
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(signal);
  ::sigaction(signal, &next, nullptr);  // back at the instruction, which faults again
}

// Device memory as a kernel may touch it, for as long as one runs.
void Open(bool open) {
  for (const auto& [at, m] : S().mappings) {
    int protection = PROT_NONE;
    if (open && OwnerLives(m) && m.access != 0)
      protection = m.access == kAccessReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
    ::mprotect(reinterpret_cast<void*>(at), m.bytes, protection);
  }
}

struct Launch {
  const FakeKernel* kernel;
  unsigned grid[3], block[3], shared_bytes;
  std::vector<std::vector<char>> values;
};

Result Run(const Launch& l) {
  if (const Result r = Fault("kernel"); r != kSuccess) return r;
  std::vector<void*> parameters;
  for (const auto& v : l.values) parameters.push_back(const_cast<char*>(v.data()));
  struct sigaction ours = {};
  ours.sa_sigaction = OnFault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &ours, &before[0]);
  ::sigaction(SIGBUS, &ours, &before[1]);
  Open(true);
  sigjmp_buf back;
  volatile Result result = kIllegalAddress;
  running = &back;
  if (sigsetjmp(back, 1) == 0)
    result = l.kernel->run(l.grid, l.block, l.shared_bytes, parameters.data());
  running = nullptr;
  Open(false);
  ::sigaction(SIGSEGV, &before[0], nullptr);
  ::sigaction(SIGBUS, &before[1], nullptr);
  if (result == kIllegalAddress)
    Log(std::string("broken rule: ") + l.kernel->name + " touched memory that it may not");
  return result;
}

// A cluster's blocks, 1 where there are none; 0: not as a GPU takes them.
unsigned ClusterBlocks(const LaunchConfig& c) {
  unsigned blocks = 1;
  for (unsigned i = 0; i < c.attribute_count; ++i) {
    const LaunchAttribute& a = c.attributes[i];
    if (a.id == kLaunchProgrammaticStreamSerialization) continue;
    if (a.id != kLaunchClusterDimension) return 0;
    const auto& d = a.value.cluster_dim;
    if (d.x == 0 || d.y == 0 || d.z == 0 || c.grid_x % d.x != 0 || c.grid_y % d.y != 0 ||
        c.grid_z % d.z != 0)
      return 0;
    blocks = d.x * d.y * d.z;
  }
  return blocks;
}

Result Queue(const LaunchConfig& c, Function f, void** parameters, void** extra) {
  if (f == nullptr || f->module == nullptr || S().modules.count(f->module) == 0)
    return kInvalidHandle;
  if (f->module->context != Current()) {
    Log("broken rule: a launch of a function of another context");
    return kInvalidHandle;
  }
  const uint64_t threads = uint64_t{c.block_x} * c.block_y * c.block_z;
  const unsigned shared_at_most = std::max(kSharedBytes, f->dynamic_shared);
  if (extra != nullptr || c.grid_x == 0 || c.grid_x > INT32_MAX || c.grid_y == 0 ||
      c.grid_y > 65535 || c.grid_z == 0 || c.grid_z > 65535 || threads == 0 || threads > 1024 ||
      c.block_z > 64 || c.shared_bytes > shared_at_most || ClusterBlocks(c) == 0 ||
      ClusterBlocks(c) > 8)
    return kInvalidValue;
  if (threads > static_cast<uint64_t>(f->kernel->threads_at_most)) return kLaunchOutOfResources;
  Launch l = {f->kernel,
              {c.grid_x, c.grid_y, c.grid_z},
              {c.block_x, c.block_y, c.block_z},
              c.shared_bytes,
              {}};
  // As with a driver, the values are those of now.
  for (size_t i = 0; i < f->kernel->parameter_bytes.size(); ++i) {
    const char* at = static_cast<const char*>(parameters[i]);
    l.values.emplace_back(at, at + f->kernel->parameter_bytes[i]);
  }
  return Enqueue(c.stream, [l = std::move(l)] { return Run(l); });
}

}  // namespace

extern "C" {

Result cuModuleLoadData(Module* out, const void* image) {
  FAKE_ENTER("cuModuleLoadData", true);
  constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};
  if (image == nullptr || (std::memcmp(image, kFatbin, sizeof kFatbin) != 0 &&
                           std::memcmp(image, kImage, sizeof kImage - 1) != 0))
    return kInvalidImage;
  auto* m = new CUmod_st;
  m->context = Current();
  for (const FakeKernel& k : Kernels()) m->functions[k.name] = {&k, m, 0};
  S().modules[m] = true;
  *out = m;
  return kSuccess;
}

Result cuModuleUnload(Module m) {
  FAKE_ENTER("cuModuleUnload", true);
  if (S().modules.erase(m) == 0) return kInvalidHandle;
  RunAll();
  delete m;
  return kSuccess;
}

Result cuModuleGetFunction(Function* out, Module m, const char* name) {
  FAKE_ENTER("cuModuleGetFunction", true);
  if (S().modules.count(m) == 0) return kInvalidHandle;
  const auto it = m->functions.find(name);
  if (it == m->functions.end()) return kNotFound;
  *out = &it->second;
  return kSuccess;
}

Result cuFuncGetAttribute(int* out, FunctionAttribute attribute, Function f) {
  FAKE_ENTER("cuFuncGetAttribute", true);
  if (f == nullptr) return kInvalidHandle;
  switch (attribute) {
    case kFuncMaxThreadsPerBlock:
      *out = f->kernel->threads_at_most;
      break;
    case kFuncSharedSizeBytes:
    case kFuncLocalSizeBytes:
      *out = 0;
      break;
    case kFuncNumRegs:
      *out = 32;
      break;
    case kFuncMaxDynamicSharedSizeBytes:
      *out = std::max(kSharedBytes, f->dynamic_shared);
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}

Result cuFuncSetAttribute(Function f, FunctionAttribute attribute, int value) {
  FAKE_ENTER("cuFuncSetAttribute", true);
  if (f == nullptr) return kInvalidHandle;
  if (attribute == kFuncNonPortableClusterSizeAllowed) return kSuccess;
  if (attribute != kFuncMaxDynamicSharedSizeBytes || value < 0 || value > kSharedBytesOptin)
    return kInvalidValue;
  f->dynamic_shared = value;
  return kSuccess;
}

Result cuLaunchKernel(Function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared_bytes, Stream stream, void** parameters,
                      void** extra) {
  FAKE_ENTER("cuLaunchKernel", true);
  return Queue({gx, gy, gz, bx, by, bz, shared_bytes, stream, nullptr, 0}, f, parameters, extra);
}

Result cuLaunchKernelEx(const LaunchConfig* c, Function f, void** parameters, void** extra) {
  FAKE_ENTER("cuLaunchKernelEx", true);
  return Queue(*c, f, parameters, extra);
}

Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, Function f, int threads,
                                                   size_t shared_bytes) {
  FAKE_ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor", true);
  if (f == nullptr) return kInvalidHandle;
  if (threads <= 0) return kInvalidValue;
  const size_t shared_at_most = static_cast<size_t>(std::max(kSharedBytes, f->dynamic_shared));
  *out =
      threads > f->kernel->threads_at_most || shared_bytes > shared_at_most
          ? 0
          : std::min({2048 / threads, static_cast<int>((228 << 10) / (shared_bytes + 1024)), 32});
  return kSuccess;
}

}  // extern "C"
