#include <cstring>
#include <iostream>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/socket.h"
#include "kernels/device/device.h"

// The other process of the device tests: imports one block of memory and does to it what it is
// told.
//   device-peer DEVICE r|rw SOCKET-FD
// First frame: transport byte, handle, size; and the descriptor. Then a command a frame, a reply a
// frame: "hash": hex sha256 of the block; "put AT BYTE": writes it through a window. An error's
// text is the reply.

namespace glyd {
namespace {

std::string Hash(Device& device, const Memory& m) {
  std::vector<uint8_t> bytes(m.bytes());
  if (const absl::Status s = device.CopyOut(m, 0, bytes.data(), bytes.size()); !s.ok())
    return std::string(s.message());
  return Sha256Hex(bytes.data(), bytes.size());
}

std::string Put(Device& device, Memory& m, uint64_t at, uint8_t byte) {
  const auto window = device.OpenWindow(m, at, 1);
  if (!window.ok()) return std::string(window.status().message());
  **window = byte;
  absl::Status s = device.Commit(m, at, *window, 1);
  if (s.ok()) s = device.Finish(m);
  return s.ok() ? "done" : std::string(s.message());
}

int Serve(const std::string& name, Access access, int socket) {
  auto device = CreateDevice(name, 1);
  auto first = RecvFrame(socket, 1 << 16);
  if (!device.ok() || !first.ok() || first->data.size() != 1 + 64 + 8) return 2;
  ExportedMemory exported;
  exported.transport = static_cast<Transport>(first->data[0]);
  std::memcpy(exported.handle.data(), first->data.data() + 1, 64);
  exported.bytes = LoadLe64(first->data.data() + 65);
  if (!first->fds.empty()) exported.fd = std::move(first->fds[0]);
  auto memory = (*device)->Import(std::move(exported), access);
  if (!SendFrame(socket, memory.ok() ? "ready" : std::string(memory.status().message())).ok())
    return 3;
  if (!memory.ok()) return 0;
  for (;;) {
    const auto command = RecvFrame(socket, 1 << 16);
    if (!command.ok()) return 0;
    unsigned long at;
    int byte;
    std::string reply = "what?";
    if (command->data == "hash")
      reply = Hash(**device, **memory);
    else if (std::sscanf(command->data.c_str(), "put %lu %d", &at, &byte) == 2)
      reply = Put(**device, **memory, at, static_cast<uint8_t>(byte));
    if (!SendFrame(socket, reply).ok()) return 3;
  }
}

}  // namespace
}  // namespace glyd

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool write = std::string(argv[2]) == "rw";
  return glyd::Serve(argv[1], write ? glyd::Access::kReadWrite : glyd::Access::kRead,
                     std::stoi(argv[3]));
}
