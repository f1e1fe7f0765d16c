// client-steps DIRECTORY MODEL STEP: a client that goes as far as STEP in attaching, says so with a
// line, and then waits for its end: 0 connected, 1 greeted, 2 leased, 3 has asked for the memory
// and not taken it, 4 has the descriptors, 5 has it mapped, 6 has released and still has it mapped.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/socket.h"
#include "tests/e2e/calls.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string directory = argv[1];
  const int step = std::atoi(argv[3]);
  const auto wait = [](bool good) {
    std::printf(good ? "there\n" : "failed\n");
    std::fflush(stdout);
    for (;;) ::pause();
  };
  if (step == 0) {
    const auto s = glyd::ConnectUnix(directory + "/broker.sock");
    wait(s.ok());
  }
  glyd::RawClient client(directory);
  if (step == 1) wait(client.ok());
  glyd::v1::AttachReply lease;
  if (!client.Attach(argv[2], &lease).ok()) wait(false);
  if (step == 2) wait(true);
  glyd::v1::BrokerRequest fetch;
  fetch.mutable_fetch()->set_lease_id(lease.lease_id());
  if (!glyd::SendFrame(client.broker(), fetch.SerializeAsString()).ok()) wait(false);
  if (step == 3) wait(true);
  const auto frame = glyd::RecvFrame(client.broker(), 1 << 20);
  if (!frame.ok() || frame->fds.size() != 2) wait(false);
  if (step == 4) wait(true);
  const size_t bytes = lease.model().allocation_bytes();
  void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, frame->fds[0].get(), 0);
  if (step == 5) wait(p != MAP_FAILED);
  wait(client.Release(lease.lease_id()).ok());
}
