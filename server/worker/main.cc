#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/cpus.h"
#include "base/sha256.h"
#include "server/worker/channel.h"
#include "server/worker/sandbox.h"

// glyd-worker device|job [--device NAME] [--threads N] [--read DIR]... [--write DIR]...: glydd's
// hands. Descriptor 3 is the socket to glydd.
int main(int argc, char** argv) {
  constexpr int kSocket = 3;
  ::signal(SIGPIPE, SIG_IGN);
  // A write past RLIMIT_FSIZE is then an error that the writer names.
  ::signal(SIGXFSZ, SIG_IGN);
  std::string device = "host";
  int threads = 0;
  glyd::SandboxOptions sandbox;
  const std::string kind = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--device") device = value;
    if (flag == "--threads") threads = std::atoi(value.c_str());
    if (flag == "--read") sandbox.read.push_back(value);
    if (flag == "--write") sandbox.write.push_back(value);
  }
  if (kind != "device" && kind != "job") {
    std::fprintf(stderr, "glyd-worker is started by glydd; there is nothing to run by hand\n");
    return 2;
  }
  if (threads == 0) threads = glyd::AvailableCpus();
  // The library reads its configuration at its first use, which the sandbox would not let it.
  glyd::Sha256Hex("", 0);
  sandbox.low_priority = kind == "job";
  // A job opens the shards of a checkpoint; a device holds a descriptor for each model and arena.
  if (kind == "job") sandbox.open_files = 4096;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A file that would have more than half of the machine is refused here, before the kernel ends
  // somebody. A GPU's driver takes memory of its own.
  if (kind == "job" || device == "host")
    sandbox.memory_bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
#endif
  const std::string held = glyd::EnterSandbox(sandbox);
  return kind == "device" ? glyd::RunDeviceWorker(device, threads, held, kSocket)
                          : glyd::RunJobWorker(kSocket);
}
