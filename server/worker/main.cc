#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "server/worker/channel.h"

// glyd-worker device --device NAME --threads N | glyd-worker job: glydd's hands. Descriptor 3 is
// the socket to glydd.
int main(int argc, char** argv) {
  constexpr int kSocket = 3;
  ::signal(SIGPIPE, SIG_IGN);
  // A write past RLIMIT_FSIZE is then an error that the writer names.
  ::signal(SIGXFSZ, SIG_IGN);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::string device = "host";
  int threads = 0;
  const std::string kind = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--device") == 0) device = argv[i + 1];
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
  }
  if (kind == "device") return glyd::RunDeviceWorker(device, threads, kSocket);
  if (kind == "job") return glyd::RunJobWorker(kSocket);
  std::fprintf(stderr, "glyd-worker is started by glydd; there is nothing to run by hand\n");
  return 2;
}
