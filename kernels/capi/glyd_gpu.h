#ifndef GLYD_GPU_H_
#define GLYD_GPU_H_

#include <stddef.h>
#include <stdint.h>

/* C API 5 of libglyd_gpu.so: products with packed bf16 matrices on NVIDIA GPUs of compute
 * capability 8.0 or later. It needs the NVIDIA driver alone (CUDA 11.8 or newer), found when a call
 * first needs it.
 *
 * A packed matrix W [O, K], O a multiple of 64, K of 16, is four arguments, whose bytes
 * docs/format.md has:
 *
 * - mma: data u8 [O K 5 / 4], blocks u8, block_base i32 [O K / 1024 + 1], tiers uint32_t[3];
 * - mma12: data u8 [O K 3 / 2], exc u32, exc_base i32 [O K / 1024 + 1], sym uint32_t[4]: the base
 *   (0 to 120) in each byte of the first word, then three zeros. The four different words of a
 *   12-bit pack of before 0.25 are refused.
 *
 * x [M, K], y [M, O] and bias [O] (or null) are bf16, row-major, without gaps. Pointers are to
 * device memory but for tiers, sym and what a query writes. `data` is 16-byte aligned, int32 and
 * uint32 arrays are 4-byte aligned, the rest as their types are.
 *
 * A call queues its work on `stream` (a cudaStream_t or CUstream of the current context; null: the
 * default stream) and returns; the caller keeps the arrays until the work is done. The first call
 * in a context loads the kernels (glyd_gpu_gpu does that too); no other allocates or waits, so that
 * streams can be captured into graphs.
 *
 * Results: 0, or the number of a cudaError_t. Arguments are looked at first, with no driver needed,
 * then the driver, then the GPU; nothing is queued where one of these is answered:
 *
 * - 1 cudaErrorInvalidValue: an argument out of range, a null pointer, a misaligned one, a
 *   workspace too small, old sym words. (What depends on the GPU's own route is looked at once the
 *   GPU is known: glyd_gpu_L_linear with route -1.)
 * - 35 cudaErrorInsufficientDriver: there is no NVIDIA driver, or one older than CUDA 11.8.
 * - 100 cudaErrorNoDevice: the driver finds no GPU.
 * - 201 cudaErrorDeviceUninitialized: no context is current.
 * - 801 cudaErrorNotSupported: not for this GPU, or not in this build.
 *
 * Others are the driver's own. y is undefined after an error that the driver tells of later.
 *
 * `workspace` has what the product's _workspace query says, 16-byte aligned; its content does not
 * matter. The queries need no driver: their answer depends on their arguments alone. `done` are
 * counters, int32, zero before the first use, and zero again after each. A workspace and a set of
 * counters serve one stream at a time.
 *
 * A product's bits are the same on every run on a GPU. Its relative error, against the decoded
 * matrix in fp64, is at most 6e-3: bf16 products summed in fp32, rounded once. */

#if defined(__cplusplus)
extern "C" {
#endif

/* 5. */
int glyd_gpu_api_version(void);
/* CUDA that the kernels are built with: 13000 is 13.0; 0: this build has none, and products answer
 * 801. */
int glyd_gpu_cuda_version(void);
/* The name of a result of this API; never null. The text lives as long as the library. */
const char* glyd_gpu_error_string(int result);
/* The code of the current context's GPU: compute capability times 10 (9.0 is 90), 1000 more for a
 * GeForce, 2000 more for an A10. Loads the kernels into the context. */
int glyd_gpu_gpu(int64_t* gpu);
/* Keeps `stream` busy for about `nanoseconds` (0 or more), for measurements. */
int glyd_gpu_hold(int64_t nanoseconds, void* stream);

/* ---- Which kernel takes a product. gpu: as glyd_gpu_gpu gives it. `last`, where it is not null,
 * gets the last M from this one on that takes the same route (INT64_MAX: all). Routes: 0 decode
 * (decode W, then a product of your own), 1 gemm, 2 mid, 3 wg, 4 big, 5 as 0 with the decode run
 * ahead. The environment variables GLYD_WG_MIN, GLYD_WG_MAX, GLYD_MID_MIN and GLYD_DEC_MIN, read
 * once, move them. */
int glyd_gpu_mma_route(int64_t gpu, int64_t O, int64_t K, int64_t M, int* route, int64_t* last);
int glyd_gpu_mma12_route(int64_t gpu, int64_t O, int64_t K, int64_t M, int* route, int64_t* last);

/* ---- Rows [row0, row0 + rows) of W, any within it, to out [rows, K]. At most `warps` warps at
 * once; 0 or less: as many as the GPU has room for. The number of rows of W is the caller's to
 * know. */
int glyd_gpu_mma_unpack(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                        const uint32_t* tiers, int64_t K, int64_t row0, int64_t rows, uint16_t* out,
                        int64_t warps, void* stream);
int glyd_gpu_mma12_unpack(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                          const uint32_t* sym, int64_t K, int64_t row0, int64_t rows, uint16_t* out,
                          int64_t warps, void* stream);

/* ---- y = x W^T + bias for M of 0 to 64. O / 64 counters. */
int glyd_gpu_mma_gemm(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                      const uint32_t* tiers, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                      const uint16_t* bias, uint16_t* y, void* workspace, size_t workspace_bytes,
                      int* done, void* stream);
int glyd_gpu_mma12_gemm(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                        const uint32_t* sym, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                        const uint16_t* bias, uint16_t* y, void* workspace, size_t workspace_bytes,
                        int* done, void* stream);
int glyd_gpu_mma_gemm_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes);
int glyd_gpu_mma12_gemm_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes);

/* ---- For any M, made for more than 64: K a multiple of 64, x 16-byte aligned. (M + 127) / 128 * O
 * / 64 counters. `variant` is for tuning and changes no result; all of them are one kernel here. */
int glyd_gpu_mma_gemm_big(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                          const uint32_t* tiers, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                          const uint16_t* bias, uint16_t* y, int64_t variant, void* workspace,
                          size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma12_gemm_big(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                            const uint32_t* sym, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                            const uint16_t* bias, uint16_t* y, int64_t variant, void* workspace,
                            size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma_gemm_big_workspace(int64_t O, int64_t K, int64_t M, int64_t variant,
                                    size_t* bytes);
int glyd_gpu_mma12_gemm_big_workspace(int64_t O, int64_t K, int64_t M, int64_t variant,
                                      size_t* bytes);

/* ---- mma12 alone. mid: made for M of 17 to 128, counters as gemm_big. wg: compute capability 9.0
 * alone (801 elsewhere), at least 1024 counters and as many as gemm_big. K a multiple of 64; x,
 * data and exc 16-byte aligned. In this build both are the kernels of gemm and gemm_big. */
int glyd_gpu_mma12_gemm_mid(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                            const uint32_t* sym, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                            const uint16_t* bias, uint16_t* y, void* workspace,
                            size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma12_gemm_wg(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                           const uint32_t* sym, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                           const uint16_t* bias, uint16_t* y, void* workspace,
                           size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma12_gemm_mid_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes);
int glyd_gpu_mma12_gemm_wg_workspace(int64_t O, int64_t K, int64_t M, size_t* bytes);

/* ---- The product by the route of the current GPU (route -1) or by one of 0 to 5 (2 and 3: mma12
 * alone; 1: M up to 64). Routes 0 and 5 run the kernel of gemm_big. The one refusal: 801, with
 * nothing queued, where K is no multiple of 64 and the route is not 1. Routes other than 1 want x
 * 16-byte aligned, 2 and 3 exc too. max(1024, (M + 127) / 128 * O / 64) counters. */
int glyd_gpu_mma_linear(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                        const uint32_t* tiers, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                        const uint16_t* bias, uint16_t* y, int64_t route, void* workspace,
                        size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma12_linear(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                          const uint32_t* sym, int64_t O, int64_t K, const uint16_t* x, int64_t M,
                          const uint16_t* bias, uint16_t* y, int64_t route, void* workspace,
                          size_t workspace_bytes, int* done, void* stream);
int glyd_gpu_mma_linear_workspace(int64_t O, int64_t K, int64_t M, int64_t route, size_t* bytes);
int glyd_gpu_mma12_linear_workspace(int64_t O, int64_t K, int64_t M, int64_t route, size_t* bytes);

/* ---- Mixtures of experts: E (at most 2048) matrices [O, K] stacked into one pack [E O, K]; T
 * tokens with k experts each, P = T k pairs, pair p of token p / k. moe_route: sorts the pairs by
 * expert, stable, into plan i32 [2 + 2 E + P], whose inner order is this library's own. An id
 * outside [0, E) counts as the nearest expert. */
int glyd_gpu_moe_route(const int64_t* ids, int64_t P, int64_t E, int32_t* plan, void* stream);
/* gather 1: x is the tokens' [T, K]; 0: the pairs' in the plan's order [P, K]. act 0: y [P, O] in
 * the plan's order, or, with weights [T, k] (fp32 or bf16) and ids, [T, O], each token's rows times
 * their weights added in the order of k. act 1 (SiLU), 2 (GELU, tanh form): y [P, O / 2] =
 * act(gate) up, gate an expert's first O / 2 rows; O % 128 == 0. (act ? O / 128 : O / 64) * min(E,
 * P) counters. */
int glyd_gpu_mma_moe(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                     const uint32_t* tiers, int64_t E, int64_t O, int64_t K, const uint16_t* x,
                     int64_t T, int64_t k, int64_t gather, const int32_t* plan, int64_t act,
                     const uint16_t* bias, const void* weights, int64_t weights_are_fp32,
                     const int64_t* ids, uint16_t* y, void* workspace, size_t workspace_bytes,
                     int* done, void* stream);
int glyd_gpu_mma12_moe(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                       const uint32_t* sym, int64_t E, int64_t O, int64_t K, const uint16_t* x,
                       int64_t T, int64_t k, int64_t gather, const int32_t* plan, int64_t act,
                       const uint16_t* bias, const void* weights, int64_t weights_are_fp32,
                       const int64_t* ids, uint16_t* y, void* workspace, size_t workspace_bytes,
                       int* done, void* stream);
int glyd_gpu_mma_moe_workspace(int64_t E, int64_t O, int64_t K, int64_t T, int64_t k, int64_t act,
                               int64_t weighted, size_t* bytes);
int glyd_gpu_mma12_moe_workspace(int64_t E, int64_t O, int64_t K, int64_t T, int64_t k, int64_t act,
                                 int64_t weighted, size_t* bytes);
/* The experts that a plan of P pairs hits, to out [E O, K]; the rows of others are left alone. */
int glyd_gpu_mma_moe_unpack(const uint8_t* data, const uint8_t* blocks, const int32_t* block_base,
                            const uint32_t* tiers, int64_t E, int64_t O, int64_t K, int64_t P,
                            const int32_t* plan, uint16_t* out, void* stream);
int glyd_gpu_mma12_moe_unpack(const uint8_t* data, const uint32_t* exc, const int32_t* exc_base,
                              const uint32_t* sym, int64_t E, int64_t O, int64_t K, int64_t P,
                              const int32_t* plan, uint16_t* out, void* stream);

/* ---- Formats of embeddings, dense weights and KV caches that this library does not have: exported
 * so that a program links, and always 801, whatever the arguments. */
int glyd_gpu_lane_bits(void);
int glyd_gpu_write_codes(void);
int glyd_gpu_decode(void);
int glyd_gpu_gemv(void);
int glyd_gpu_fast_gemv(void);
int glyd_gpu_fast_decode(void);
int glyd_gpu_fast_gemm(void);
int glyd_gpu_fast_gemm_workspace(void);
int glyd_gpu_fast_bgemv(void);
int glyd_gpu_fast_bgemv_workspace(void);
int glyd_gpu_attn_decode(void);
int glyd_gpu_attn_decode_workspace(void);

#if defined(__cplusplus)
}
#endif

#endif /* GLYD_GPU_H_ */
