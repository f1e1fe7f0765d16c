#ifndef GLYD_PACKER_TESTING_HUGE_H_
#define GLYD_PACKER_TESTING_HUGE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kernels/format/pack.h"
#include "packer/testing/fixtures.h"

namespace glyd::testing {

inline constexpr uint64_t kMiB = 1 << 20;
// What any work on a model may take of memory here, whatever the model's size.
inline constexpr uint64_t kMemoryBound = 512 * kMiB;

// A safetensors file of this header and zeros, sparse: it costs no disk before it is packed.
void WriteSparse(const std::string& path, std::string header, uint64_t data_bytes);

// The most memory that a child process has while it runs `f`, which must succeed.
uint64_t PeakBytes(const std::function<absl::Status()>& f);

// A model of one tensor of 3 GiB in dir/model, packed to dir/out and verified, with a look at
// memory and sha256. False where the disk has no room.
bool PackAndVerify3GiB(const TempDir& dir, Layout layout);

}  // namespace glyd::testing

#endif  // GLYD_PACKER_TESTING_HUGE_H_
