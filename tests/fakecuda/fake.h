#ifndef GLYD_TESTS_FAKECUDA_FAKE_H_
#define GLYD_TESTS_FAKECUDA_FAKE_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/cuda/driver_types.h"

// A test double of the CUDA driver: its functions, in a library of its name, over memory files, so
// that real processes share "device memory", with the driver's rules enforced. What it does that a
// driver only might:
//   - device memory starts as 0xCD, cannot be touched by the CPU, and is poisoned when it is freed
//   under an importer;
//   - a copy or a launch on a stream happens when somebody waits for it, never earlier;
//   - a kernel that touches what is not mapped, or writes what is mapped to read, is error 700,
//   which is sticky.
//
// Environment:
//   FAKECUDA_DEVICES  how many GPUs (1); CUDA_VISIBLE_DEVICES chooses among them by number or UUID
//   FAKECUDA_MEMORY   bytes of each (1 GiB)
//   FAKECUDA_TAG      processes of one tag share the GPUs
//   FAKECUDA_CC       compute capability (90)
//   FAKECUDA_NAME     of each ("NVIDIA Double")
//   FAKECUDA_NO       what is not there, comma separated: ipc, vmm (said to be missing); ipc-open,
//                     vmm-import (said to be there, but failing)
//   FAKECUDA_REOPEN   208: a second open of a handle in a process fails, as with some drivers
//   FAKECUDA_FAIL     FUNCTION:N[=RESULT],... the Nth call of a process fails (2, out of memory,
//                     where none is named); "kernel:N=RESULT" as the Nth kernel runs, which is
//                     later than its launch; FUNCTION~MS: every call takes so long. "@PATH": the
//                     same in a file, which is removed when the first fault in it has struck: one
//                     process is hit, not each after it.
//   FAKECUDA_LOG      a file that broken rules and leaks at exit are appended to, a line each
//   FAKECUDA_COUNTERS a folder where every process keeps what it holds now, in a file named by its
//                     pid: "NAME COUNT" a line (Counts)

namespace fakecuda {

using namespace glyd::cu;  // the double speaks nothing but this vocabulary

constexpr uint64_t kPage = uint64_t{2} << 20;

// What cuModuleLoadData takes here: an image that begins so has every kernel of Kernels().
constexpr char kImage[] = "fakecuda image";

}  // namespace fakecuda

struct FakeKernel;
struct CUctx_st {
  int device = 0;  // physical
  int refs = 0;
};
struct CUstream_st {
  CUctx_st* context = nullptr;
  bool blocking = false;
  uint64_t queued = 0, done = 0;  // operations, counted
  std::deque<std::function<glyd::cu::Result()>> work;
};
struct CUevent_st {
  CUctx_st* context = nullptr;
  CUstream_st* stream = nullptr;
  uint64_t after = 0;  // operations of the stream
  bool timed = true;
  std::shared_ptr<double> ms = std::make_shared<double>(0);  // when it was reached
};
struct CUfunc_st {
  const FakeKernel* kernel = nullptr;
  CUmod_st* module = nullptr;
  int dynamic_shared = 0;
};
struct CUmod_st {
  CUctx_st* context = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

// What a launch runs: all of the grid, in the calling thread. It may touch device memory at the
// addresses that the process knows; a fault in it ends it by a jump, so it owns nothing meanwhile.
struct FakeKernel {
  const char* name;
  std::vector<size_t> parameter_bytes;
  std::function<fakecuda::Result(const unsigned grid[3], const unsigned block[3],
                                 unsigned shared_bytes, void** parameters)>
      run;
  int threads_at_most = 1024;
};

namespace fakecuda {

std::vector<FakeKernel>& Kernels();
// Adds to Kernels before main: a static object of a file with kernels.
struct Registration {
  explicit Registration(FakeKernel k) { Kernels().push_back(std::move(k)); }
};

// Memory as a process sees it. `base` is what the process calls its address; the CPU may not touch
// it but while a kernel runs. The double itself uses `shadow`.
struct Mapping {
  enum Kind { kAlloc, kIpc, kVmm } kind = kAlloc;
  uint64_t bytes = 0;
  int device = 0;
  int fd = -1;
  uint8_t* shadow = nullptr;
  int access = 0;       // kAccessRead, kAccessReadWrite
  uint64_t handle = 0;  // of kVmm
  int opens = 0;        // of kIpc
  pid_t owner = 0;      // of kIpc
  uint64_t owner_start = 0;
  uint64_t inode = 0;
};
struct VmmHandle {
  int fd = -1;
  uint64_t bytes = 0;
  int device = 0;
  int mappings = 0;
  bool held = true;  // not released
};

struct State {
  std::recursive_mutex mu;
  bool initialised = false, forked = false;
  Result sticky = kSuccess;
  std::vector<int> visible;  // ordinal to physical GPU
  std::map<int, CUctx_st> contexts;
  std::map<uint64_t, Mapping> mappings;
  std::map<uint64_t, uint64_t> reservations;
  std::map<uint64_t, VmmHandle> handles;
  std::map<uint64_t, uint64_t> pinned;
  std::map<CUstream_st*, bool> streams;
  std::map<CUevent_st*, bool> events;
  std::map<CUmod_st*, bool> modules;
  CUstream_st null_stream;
  uint64_t next_handle = 0x51000;
  std::map<std::string, uint64_t> calls;
};
State& S();
// What this process holds: of each kind, named by the call that made it.
std::vector<std::pair<std::string, uint64_t>> Counts();

std::string Env(const char* name, const char* otherwise = "");
bool Lacks(const char* what);
void Log(const std::string& line);
std::string MemoryName();
// Bytes of device memory with this tag in the whole machine: memory files held by any process.
uint64_t BytesInUse(int device);
// Processes other than this one that hold the memory file.
int OtherHolders(uint64_t inode);
uint64_t StartTime(pid_t pid);

// The mapping that holds [at, at + bytes), or null.
Mapping* Find(uint64_t at, uint64_t bytes, uint64_t* base);
CUctx_st* Current();
std::vector<CUctx_st*>& ContextStack();  // of this thread
bool OwnerLives(const Mapping& m);       // memory opened by IPC handle dies with its owner
Result RunUntil(CUstream_st* s, uint64_t operations);
Result RunAll();
Result Enqueue(CUstream_st* s, std::function<Result()> work);

// A fault that is due at this call of `name`; kSuccess where none is.
Result Fault(const char* name);
bool Sticky(Result r);

// Every call is in one: alone in the process; its counters are written as it ends.
class Call {
 public:
  Call() : lock_(S().mu) {}
  ~Call();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};
// What every call begins with: faults, a poisoned context, a missing one.
Result Enter(const char* name, bool needs_context);

// Returns early where Enter refuses.
#define FAKE_ENTER(name, context) \
  fakecuda::Call call;            \
  if (const Result r = fakecuda::Enter(name, context); r != kSuccess) return r

}  // namespace fakecuda

#endif  // GLYD_TESTS_FAKECUDA_FAKE_H_
