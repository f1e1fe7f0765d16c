#ifndef GLYD_SERVER_WORKER_SANDBOX_H_
#define GLYD_SERVER_WORKER_SANDBOX_H_

#include <string>
#include <vector>

namespace glyd {

// What a worker keeps for itself: it reads files that strangers made.
struct SandboxOptions {
  std::vector<std::string> read;   // directories beneath which it reads
  std::vector<std::string> write;  // and beneath which it also makes, renames and removes
  bool low_priority = false;       // for jobs: serving comes first
  // Limits that hold where a file would have this process take all there is; 0: none. Memory of its
  // own (RLIMIT_DATA): models' blocks and arenas are shared memory, which the budget counts.
  uint64_t memory_bytes = 0;
  uint64_t open_files = 0;
};

// Gives up, for this process and for good: new privileges, sockets of any kind, programs, other
// processes, every directory but the options' (Landlock, where the kernel has it), core dumps.
// Before threads are started. The list of what took hold ("no-new-privs seccomp landlock"), for the
// log; a kernel without a part is no failure.
std::string EnterSandbox(const SandboxOptions& options);

}  // namespace glyd

#endif  // GLYD_SERVER_WORKER_SANDBOX_H_
