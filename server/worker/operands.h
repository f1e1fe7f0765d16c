#ifndef GLYD_SERVER_WORKER_OPERANDS_H_
#define GLYD_SERVER_WORKER_OPERANDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace glyd {

// Numbers that came by a message, where a device's work finds them, and those that go back by one:
// on the host they are used where they are, on a GPU they are copied. One product's, in one thread.
class Operands {
 public:
  explicit Operands(Device& device) : device_(device) {}
  // The device's address of `count` numbers. They stay the caller's, unchanged, until this ends.
  absl::StatusOr<const uint16_t*> In(const uint16_t* numbers, uint64_t count);
  // The device's address for `count` results, which Collect puts into `numbers`.
  absl::StatusOr<uint16_t*> Out(uint16_t* numbers, uint64_t count);
  absl::Status Collect();

 private:
  absl::StatusOr<Memory*> Allocate(uint64_t count);

  struct Result {
    const Memory* from;
    uint16_t* to;
    uint64_t bytes;
  };
  Device& device_;
  std::vector<std::unique_ptr<Memory>> blocks_;
  std::vector<Result> results_;
};

// The pack's bytes where the CPU reads them: where they are on the host, else copied out of
// `memory` into `copy`, which the view then needs.
struct PackCopy {
  std::vector<uint8_t> data, side;
  std::vector<int32_t> base;
};
absl::StatusOr<PackView> ReadableView(Device& device, const Memory& memory, const PackView& pack,
                                      PackCopy* copy);

}  // namespace glyd

#endif  // GLYD_SERVER_WORKER_OPERANDS_H_
