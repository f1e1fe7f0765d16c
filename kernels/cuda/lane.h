#ifndef GLYD_KERNELS_CUDA_LANE_H_
#define GLYD_KERNELS_CUDA_LANE_H_

#include <cstdint>

#include "kernels/simt/simt.h"

namespace glyd::gpu {

// A thread of a block on the GPU: every member is one instruction or two. kernels/simt/host_lane.h
// says what each does.
class CudaLane {
 public:
  // Volatile: else the number is asked for anew at each use.
  GLYD_DEVICE CudaLane() { asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane_)); }

  GLYD_DEVICE int thread() const { return threadIdx.x; }
  GLYD_DEVICE int lane() const { return lane_; }
  GLYD_DEVICE int warp() const {
    return __shfl_sync(simt::kAllLanes, threadIdx.x / simt::kWarp, 0);
  }
  GLYD_DEVICE int block_x() const { return blockIdx.x; }
  GLYD_DEVICE int grid_x() const { return gridDim.x; }
  GLYD_DEVICE int threads() const { return blockDim.x; }

  GLYD_DEVICE uint64_t Nanoseconds() const {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }

  // Global memory that nothing writes while the kernel runs.
  template <typename T>
  GLYD_DEVICE T Load(const T* p) const {
    return __ldg(p);
  }
  GLYD_DEVICE simt::U4 Load(const simt::U4* p) const {
    return From(__ldg(reinterpret_cast<const uint4*>(p)));
  }
  template <typename T>
  GLYD_DEVICE void Store(T* p, T value) const {
    *p = value;
  }
  GLYD_DEVICE void Store(simt::U4* p, simt::U4 v) const {
    __stcs(reinterpret_cast<uint4*>(p), make_uint4(v.v[0], v.v[1], v.v[2], v.v[3]));
  }
  template <typename T>
  GLYD_DEVICE T LoadFresh(const T* p) const {
    return __ldcg(p);
  }
  GLYD_DEVICE int AtomicAdd(int* p, int by) const { return atomicAdd(p, by); }
  GLYD_DEVICE void Fence() const { __threadfence(); }

  template <typename T>
  GLYD_DEVICE T SharedLoad(const T* p) const {
    return *p;
  }
  GLYD_DEVICE simt::U4 SharedLoad(const simt::U4* p) const {
    return From(*reinterpret_cast<const uint4*>(p));
  }
  template <typename T>
  GLYD_DEVICE void SharedStore(T* p, T value) const {
    *p = value;
  }
  GLYD_DEVICE void SharedStore(simt::U4* p, simt::U4 v) const {
    *reinterpret_cast<uint4*>(p) = make_uint4(v.v[0], v.v[1], v.v[2], v.v[3]);
  }

  template <int kBytes>
  GLYD_DEVICE void CopyAsync(void* shared, const void* global) const {
    static_assert(kBytes == 16);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(Address(shared)),
                 "l"(global)
                 : "memory");
  }
  // Predicated: a branch would cost more than the copy.
  template <int kBytes>
  GLYD_DEVICE void CopyAsyncIf(bool there, void* shared, const void* global) const {
    static_assert(kBytes == 16);
    asm volatile(
        "{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], "
        "16; }" ::"r"(Address(shared)),
        "l"(global), "r"(static_cast<int>(there))
        : "memory");
  }
  GLYD_DEVICE void CommitCopies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kNewest>
  GLYD_DEVICE void WaitCopies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
  }

  GLYD_DEVICE void SyncBlock() const { __syncthreads(); }
  GLYD_DEVICE void SyncWarp(uint32_t mask = simt::kAllLanes) const { __syncwarp(mask); }
  GLYD_DEVICE uint32_t Ballot(uint32_t mask, bool value) const {
    return __ballot_sync(mask, value);
  }
  GLYD_DEVICE uint32_t Shuffle(uint32_t mask, uint32_t value, int from) const {
    return __shfl_sync(mask, value, from);
  }
  GLYD_DEVICE uint32_t ShuffleUp(uint32_t mask, uint32_t value, int by) const {
    return __shfl_up_sync(mask, value, by);
  }
  GLYD_DEVICE void LoadMatrices(const void* row, uint32_t (&out)[4]) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(Address(row))
                 : "memory");
  }
  GLYD_DEVICE void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  static GLYD_DEVICE uint32_t Address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  static GLYD_DEVICE simt::U4 From(uint4 v) { return {{v.x, v.y, v.z, v.w}}; }

  int lane_;
};

}  // namespace glyd::gpu

#endif  // GLYD_KERNELS_CUDA_LANE_H_
