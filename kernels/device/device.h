#ifndef GLYD_KERNELS_DEVICE_DEVICE_H_
#define GLYD_KERNELS_DEVICE_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"
#include "kernels/linear/linear.h"

namespace glyd {

// Where model memory lives and products run: "host" (CreateHostDevice), or a GPU, "cuda:0" (cuda/cuda_device.h).

inline constexpr uint64_t kAllocationAlign = uint64_t{2} << 20;  // blocks are aligned to and sized in this
inline constexpr uint64_t kBufferAlign = 256;                    // buffers within a block

struct DeviceInfo {
  std::string name;            // "host", "cuda:0"
  std::string kind;            // "host", "cuda"
  std::string model;           // of the processor or GPU, for people
  std::string uuid;            // of a GPU; empty on the host
  uint64_t total_bytes = 0;    // memory that the device has
};

enum class Transport : uint8_t { kFd = 1, kCudaIpc = 2 };

// How another process gets at a block. kFd: `fd`. kCudaIpc: the 64 bytes of a handle to the block's base.
struct ExportedMemory {
  Transport transport = Transport::kFd;
  UniqueFd fd;
  std::array<uint8_t, 64> handle = {};
  uint64_t bytes = 0;
};

enum class Access : uint8_t { kRead, kReadWrite };

// A block of device memory that this process allocated or imported; freed or unmapped at destruction. Thread-safe
// but for Seal, which no write may be concurrent with.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual uint64_t bytes() const = 0;
  // The address that the device's work uses: on the host readable here, on a GPU a CUdeviceptr, which the CPU cannot
  // follow (Device::CopyOut does). Valid for this object's life or, where it
  // is sealed, until Seal; sealed memory is mapped again, read-only, at another address.
  virtual uint8_t* data() const = 0;
  // Ends writing for good: for every process where the device can (host: memfd seals), else in this one (a GPU has no
  // seal; an importer to read cannot write what it imported by descriptor).
  virtual absl::Status Seal() = 0;
  virtual absl::StatusOr<ExportedMemory> Export() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Of info().total_bytes, what nobody has now.
  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;
  // Zeroed memory, rounded up to kAllocationAlign. ResourceExhausted names the bytes asked. `label` is for people
  // (/proc/PID/maps); it holds no secret.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t bytes, absl::string_view label) = 0;
  // Memory that another process exported. An fd is checked before it is mapped: its type, its size (`bytes` at
  // least), and, for kRead, that it is sealed against writing and shrinking; kReadWrite: against shrinking.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Import(ExportedMemory exported, Access access) = 0;

  // A place for `bytes` to be written to by the CPU that Commit puts at `offset` of `m`: the memory itself on the
  // host, a pinned buffer elsewhere. At most kWindowBytes. Several threads may hold windows of disjoint ranges, one
  // each: a GPU has 8, and who opens one more waits. A window that is not committed goes with its memory.
  static constexpr uint64_t kWindowBytes = uint64_t{8} << 20;
  virtual absl::StatusOr<uint8_t*> OpenWindow(Memory& m, uint64_t offset, uint64_t bytes) = 0;
  virtual absl::Status Commit(Memory& m, uint64_t offset, uint8_t* window, uint64_t bytes) = 0;
  // Waits for every Commit: before it no other work sees the bytes, CopyOut and DecodeRows apart.
  virtual absl::Status Finish(Memory& m) = 0;
  virtual absl::Status CopyOut(const Memory& m, uint64_t offset, void* out, uint64_t bytes) = 0;

  // y = x W^T + bias on this device; `args` point to its memory. Blocks until y is there.
  virtual absl::Status Linear(const LinearArgs& args) = 0;
  // Rows of W as bf16 into CPU memory (kernels/format/pack.h DecodeRows); `pack` points to device memory.
  virtual absl::Status DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows, uint16_t* out) = 0;
};

std::unique_ptr<Device> CreateHostDevice(int threads);

// "host", "cuda:0"; a name of a kind this build or machine lacks is NotFound, saying which there are. A GPU lends what it
// allocates by `transport`, and imports by both; the host has descriptors alone.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name, int threads,
                                                     Transport transport = Transport::kFd);

}  // namespace glyd

#endif  // GLYD_KERNELS_DEVICE_DEVICE_H_
