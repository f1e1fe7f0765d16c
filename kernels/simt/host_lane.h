#ifndef GLYD_KERNELS_SIMT_HOST_LANE_H_
#define GLYD_KERNELS_SIMT_HOST_LANE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "kernels/simt/memory.h"
#include "kernels/simt/simt.h"

namespace glyd::simt {

class Block;

// Where a body asks for something; lanes of a warp that are at the same place do it together.
struct Site {
  const char* file;
  int line;
  bool operator==(const Site&) const = default;
};

// A thread of a block, on the CPU: the same members as CudaLane (kernels/cuda/lane.h), with checks.
// What a GPU would leave undefined ends the launch with an error. Members that have `file` and
// `line` take them from their caller.
#define GLYD_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
class HostLane {
 public:
  HostLane(Block* block, int thread) : block_(block), thread_(thread) {}

  int thread() const { return thread_; }
  int lane() const { return thread_ % kWarp; }
  int warp() const { return thread_ / kWarp; }
  int block_x() const;
  int block_y() const;
  int grid_x() const;
  int grid_y() const;
  int threads() const;
  uint64_t Nanoseconds() const;  // of a clock that only rises

  // Global memory. T of 1, 2, 4, 8 or 16 bytes, at a multiple of its size.
  template <typename T>
  T Load(const T* p, GLYD_SITE) const {
    T value;
    Access(p, sizeof(T), kGlobalRead, {file, line});
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  template <typename T>
  void Store(T* p, T value, GLYD_SITE) const {
    Access(p, sizeof(T), kGlobalWrite, {file, line});
    std::memcpy(p, &value, sizeof(T));
  }
  // What other blocks stored before a Fence and an AtomicAdd that this block's has seen.
  template <typename T>
  T LoadFresh(const T* p, GLYD_SITE) const {
    return Load(p, file, line);
  }
  int AtomicAdd(int* p, int by, GLYD_SITE) const {
    const int old = Load(p, file, line);
    Store(p, old + by, file, line);
    return old;
  }
  void Fence() const {}

  // The block's shared memory.
  template <typename T>
  T SharedLoad(const T* p, GLYD_SITE) const {
    T value;
    Access(p, sizeof(T), kSharedRead, {file, line});
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  template <typename T>
  void SharedStore(T* p, T value, GLYD_SITE) const {
    Access(p, sizeof(T), kSharedWrite, {file, line});
    std::memcpy(p, &value, sizeof(T));
  }

  // Starts a copy of kBytes (4, 8 or 16) from global to shared memory. It lands when this lane
  // waits for its group, and not before: until then the destination counts as never written.
  template <int kBytes>
  void CopyAsync(void* shared, const void* global, GLYD_SITE) const {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    StartCopy(shared, global, kBytes, {file, line});
  }
  template <int kBytes>
  void CopyAsyncIf(bool there, void* shared, const void* global, GLYD_SITE) const {
    if (there) CopyAsync<kBytes>(shared, global, file, line);
  }
  void CommitCopies() const;
  // All groups but the newest kNewest have landed.
  template <int kNewest>
  void WaitCopies() const {
    LandCopies(kNewest);
  }

  void SyncBlock() const;
  void SyncWarp(uint32_t mask = kAllLanes) const;
  uint32_t Ballot(uint32_t mask, bool value) const;
  uint32_t Shuffle(uint32_t mask, uint32_t value, int from) const;
  // The value of the lane `by` below; its own where there is none.
  uint32_t ShuffleUp(uint32_t mask, uint32_t value, int by) const {
    return Shuffle(mask, value, lane() < by ? lane() : lane() - by);
  }
  // Four 8 x 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8
  // (16 bytes, a multiple of 16) and gets columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each.
  void LoadMatrices(const void* row, uint32_t (&out)[4], GLYD_SITE) const;
  // d += a b: mma.m16n8k16, bf16 operands, fp32 sums.
  void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;

 private:
  enum Kind { kGlobalRead, kGlobalWrite, kSharedRead, kSharedWrite };
  friend class Block;
  void Access(const void* p, size_t bytes, Kind kind, Site site) const;
  void StartCopy(void* shared, const void* global, size_t bytes, Site site) const;
  void LandCopies(int newest) const;

  Block* block_;
  int thread_;
};
#undef GLYD_SITE

// In which order lanes, and blocks, get their turns. A barrier that is missing shows in some order.
enum class Order { kForward, kReverse, kShuffled };

struct Launch {
  int grid_x = 1, grid_y = 1;
  int threads = kWarp;  // a block; a multiple of 32, at most 1024
  size_t shared_bytes = 0;
  Order order = Order::kForward;
  uint64_t seed = 1;         // of kShuffled
  Memory* memory = nullptr;  // null: global memory is neither checked for bounds nor counted
  Counts* counts = nullptr;  // null: not counted
};

// Runs `body` for each lane of each block, one block after another, each with `shared_bytes` of
// shared memory (aligned to 1024) that holds nothing anyone wrote. Empty, or the first error with
// block, thread and place: a barrier or collective that some of its lanes do not reach; global or
// shared memory out of bounds, not aligned, or read-only and written; shared memory read that
// nothing wrote; an asynchronous copy never waited for. After an error memory is as it was then.
std::string Run(const Launch& launch, const std::function<void(HostLane&, void* shared)>& body);

}  // namespace glyd::simt

#endif  // GLYD_KERNELS_SIMT_HOST_LANE_H_
