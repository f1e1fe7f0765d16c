#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/fakecuda/fake.h"

namespace fakecuda {

std::vector<CUctx_st*>& ContextStack() {
  thread_local std::vector<CUctx_st*> stack;
  return stack;
}

State& S() {
  static State* state = new State;  // never destroyed: other threads may be in it at exit
  return *state;
}

std::string Env(const char* name, const char* otherwise) {
  const char* v = std::getenv(name);
  return v == nullptr ? otherwise : v;
}

bool Lacks(const char* what) {
  return ("," + Env("FAKECUDA_NO") + ",").find(std::string(",") + what + ",") != std::string::npos;
}

void Log(const std::string& line) {
  const std::string path = Env("FAKECUDA_LOG");
  if (path.empty()) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string text = "pid " + std::to_string(::getpid()) + ": " + line + "\n";
  [[maybe_unused]] const ssize_t n = ::write(fd, text.data(), text.size());
  ::close(fd);
}

std::string MemoryName() { return "fakecuda." + Env("FAKECUDA_TAG", "0") + "."; }

namespace {

// `f(pid, path of a descriptor)` for each open memory file with this tag, in every process.
void ForEachHolder(const std::string& name,
                   const std::function<void(pid_t, const std::string&)>& f) {
  const std::string want = "/memfd:" + name;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return;
  while (const dirent* p = ::readdir(proc)) {
    const pid_t pid = std::atoi(p->d_name);
    if (pid <= 0) continue;
    const std::string dir = std::string("/proc/") + p->d_name + "/fd";
    DIR* fds = ::opendir(dir.c_str());
    if (fds == nullptr) continue;
    while (const dirent* d = ::readdir(fds)) {
      char link[256];
      const std::string path = dir + "/" + d->d_name;
      const ssize_t n = ::readlink(path.c_str(), link, sizeof link);
      if (n > 0 && std::string(link, n).rfind(want, 0) == 0) f(pid, path);
    }
    ::closedir(fds);
  }
  ::closedir(proc);
}

__attribute__((destructor)) void ReportLeaks() {
  State& s = S();
  if (!s.initialised || s.forked) return;
  // After a sticky error nothing can be given back.
  if (s.sticky == kSuccess)
    for (const auto& [what, count] : Counts())
      if (count > 0 && what != "bytes")
        Log("leak at exit: " + std::to_string(count) + " of " + what);
  if (const std::string dir = Env("FAKECUDA_COUNTERS"); !dir.empty())
    ::unlink((dir + "/" + std::to_string(::getpid())).c_str());
}

}  // namespace

std::vector<std::pair<std::string, uint64_t>> Counts() {
  const State& s = S();
  uint64_t allocs = 0, ipc = 0, vmm = 0, handles = 0, retains = 0, bytes = 0;
  for (const auto& [at, m] : s.mappings) {
    (m.kind == Mapping::kAlloc ? allocs : m.kind == Mapping::kIpc ? ipc : vmm) += 1;
    bytes += m.bytes;
  }
  for (const auto& [id, h] : s.handles) handles += h.held;
  for (const auto& [device, c] : s.contexts) retains += c.refs;
  return {{"cuMemAlloc", allocs},
          {"cuIpcOpenMemHandle", ipc},
          {"cuMemMap", vmm},
          {"cuMemCreate", handles},  // or import
          {"cuMemAddressReserve", s.reservations.size()},
          {"cuMemHostAlloc", s.pinned.size()},
          {"cuStreamCreate", s.streams.size()},
          {"cuEventCreate", s.events.size()},
          {"cuModuleLoadData", s.modules.size()},
          {"cuDevicePrimaryCtxRetain", retains},
          {"bytes", bytes}};  // mapped
}

Call::~Call() {
  static const std::string* dir = new std::string(Env("FAKECUDA_COUNTERS"));
  if (dir->empty() || S().forked) return;
  std::string text;
  for (const auto& [what, count] : Counts()) text += what + " " + std::to_string(count) + "\n";
  // A reader never sees half of one.
  const std::string path = *dir + "/" + std::to_string(::getpid()), fresh = path + ".new";
  std::ofstream(fresh) << text;
  ::rename(fresh.c_str(), path.c_str());
}

Result Fault(const char* name) {
  const uint64_t call = ++S().calls[name];
  std::string spec = Env("FAKECUDA_FAIL"), path;
  if (spec.empty()) return kSuccess;
  if (spec[0] == '@') {
    path = spec.substr(1);
    std::ifstream in(path);
    std::getline(in, spec);
  }
  std::stringstream parts(spec);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t end = part.find_first_of(":~");
    if (end == std::string::npos || part.substr(0, end) != name) continue;
    const unsigned long n = std::strtoul(part.c_str() + end + 1, nullptr, 10);
    if (part[end] == '~') {
      std::this_thread::sleep_for(std::chrono::milliseconds(n));
      continue;
    }
    if (n != call) continue;
    if (!path.empty() && ::unlink(path.c_str()) != 0) continue;  // another process was hit
    const size_t equals = part.find('=');
    return equals == std::string::npos ? kOutOfMemory
                                       : static_cast<Result>(std::atoi(part.c_str() + equals + 1));
  }
  return kSuccess;
}

bool Sticky(Result r) {
  return r == kEccUncorrectable ||
         (r >= kIllegalAddress && r <= kTensorMemoryLeak && r != kLaunchOutOfResources &&
          r != static_cast<Result>(708)) ||
         r == kUnknown;
}

uint64_t BytesInUse(int device) {
  std::set<uint64_t> seen;
  uint64_t bytes = 0;
  ForEachHolder(MemoryName() + std::to_string(device) + " ", [&](pid_t, const std::string& path) {
    struct stat st;
    if (::stat(path.c_str(), &st) == 0 && seen.insert(st.st_ino).second) bytes += st.st_size;
  });
  return bytes;
}

int OtherHolders(uint64_t inode) {
  std::set<pid_t> pids;
  ForEachHolder(MemoryName(), [&](pid_t pid, const std::string& path) {
    struct stat st;
    if (pid != ::getpid() && ::stat(path.c_str(), &st) == 0 && st.st_ino == inode) pids.insert(pid);
  });
  return static_cast<int>(pids.size());
}

uint64_t StartTime(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || text.compare(name_end + 2, 1, "Z") == 0) return 0;
  std::stringstream rest(text.substr(name_end + 2));
  std::string word;
  for (int i = 3; i <= 22 && rest >> word; ++i) {
  }
  return std::strtoull(word.c_str(), nullptr, 10);
}

bool OwnerLives(const Mapping& m) {
  return m.kind != Mapping::kIpc || StartTime(m.owner) == m.owner_start;
}

Mapping* Find(uint64_t at, uint64_t bytes, uint64_t* base) {
  auto it = S().mappings.upper_bound(at);
  if (it == S().mappings.begin()) return nullptr;
  --it;
  const uint64_t offset = at - it->first;
  if (offset > it->second.bytes || bytes > it->second.bytes - offset) return nullptr;
  *base = it->first;
  return &it->second;
}

CUctx_st* Current() { return ContextStack().empty() ? nullptr : ContextStack().back(); }

Result Enter(const char* name, bool needs_context) {
  State& s = S();
  if (s.forked) {
    Log(std::string("broken rule: ") + name + " in a child forked after cuInit");
    return kNotInitialized;
  }
  if (!s.initialised && std::strcmp(name, "cuInit") != 0) return kNotInitialized;
  if (s.sticky != kSuccess && needs_context) return s.sticky;
  if (const Result r = Fault(name); r != kSuccess) {
    if (Sticky(r)) s.sticky = r;
    return r;
  }
  if (needs_context && Current() == nullptr) {
    Log(std::string("broken rule: ") + name + " with no context current");
    return kInvalidContext;
  }
  return kSuccess;
}

Result RunUntil(CUstream_st* s, uint64_t operations) {
  while (s->done < operations && !s->work.empty()) {
    const auto work = std::move(s->work.front());
    s->work.pop_front();
    ++s->done;
    if (S().sticky != kSuccess) continue;
    if (const Result r = work(); r != kSuccess) S().sticky = r;
  }
  return S().sticky;
}

Result RunAll() {
  for (auto& [s, blocking] : S().streams) RunUntil(s, s->queued);
  return RunUntil(&S().null_stream, S().null_stream.queued);
}

Result Enqueue(CUstream_st* s, std::function<Result()> work) {
  State& state = S();
  if (s == nullptr) {
    // The legacy stream waits for every blocking one, and they for it.
    for (auto& [other, blocking] : state.streams)
      if (blocking) RunUntil(other, other->queued);
    s = &state.null_stream;
  } else {
    if (state.streams.count(s) == 0) return kInvalidHandle;
    if (s->context != Current()) {
      Log("broken rule: a stream of another context");
      return kInvalidHandle;
    }
    if (s->blocking) RunUntil(&state.null_stream, state.null_stream.queued);
  }
  s->work.push_back(std::move(work));
  ++s->queued;
  return kSuccess;
}

}  // namespace fakecuda
