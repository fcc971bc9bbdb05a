// SPDX-License-Identifier: Apache-2.0
// The one header that kernel files include first: nvcc sees CUDA, a host compiler sees the emulation of it. Kernel
// files contain no `<<<`, `__shared__`, `asm` or `__CUDACC__`: they use what is here (README.md has the rules).
#pragma once
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "sm_80 or later"
#endif
#define CU_UNROLL _Pragma("unroll")
#define CU_UNROLL_BY(n) CU_PRAGMA(unroll n)
#define CU_PRAGMA(text) _Pragma(#text)
#define CU_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define CU_DYN_SHARED(T, name)                                        \
  extern __shared__ __align__(128) unsigned char cu_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(cu_dynamic_shared)
#else
#include "../cuda_on_cpu/cuda_on_cpu.h"
#endif
#define BANTAM_HOST_DEVICE __host__ __device__  // for shared headers that know nothing of CUDA, as philox.h

#include <cstdint>

#include "../dtype.h"
#include "device.h"

namespace bantam::cuda {

struct LaunchGrid {  // a grid that remembers the call site
  dim3 size;
  const char* file;
  int line;
  LaunchGrid(int64_t blocks, const char* f = __builtin_FILE(), int l = __builtin_LINE()) : file(f), line(l) {
    if (blocks < 1 || blocks > 0x7fffffff) throw_launch(blocks, f, l);
    size = dim3(static_cast<unsigned>(blocks));
  }
};

/// Runs kernel(args...) on `grid` blocks of `block` threads in stream `on`, with `shared_bytes` of dynamic shared
/// memory. Arguments are converted to the kernel's parameter types.
template <class... P, class... A>
void launch_on(cudaStream_t on, void (*kernel)(P...), LaunchGrid grid, int block, size_t shared_bytes, A... args) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
  cudaLaunchConfig_t config{};
  config.gridDim = grid.size;
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = on;
  if (shared_bytes > 48 * 1024)
    cu_check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute", grid.file, grid.line);
  cu_check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), "kernel launch", grid.file, grid.line);
}
/// The same in this process's stream, as all ops run.
template <class... P, class... A>
void launch(void (*kernel)(P...), LaunchGrid grid, int block, size_t shared_bytes, A... args) {
  launch_on(stream(), kernel, grid, block, shared_bytes, args...);
}
inline int64_t blocks_for(int64_t n, int64_t per_block) {
  return (n + per_block - 1) / per_block;
}

// ---- device code ----
__device__ __forceinline__ float load(const float* p) {
  return *p;
}
__device__ __forceinline__ float load(const bf16* p) {
  return __uint_as_float(static_cast<uint32_t>(p->bits) << 16);
}
__device__ __forceinline__ void store(float* p, float v) {
  *p = v;
}
__device__ __forceinline__ void store(bf16* p, float v) {
  p->bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

// Four neighbours at once; p is aligned to 4 elements.
__device__ __forceinline__ void load4(const float* p, float (&v)[4]) {
  const float4 q = *reinterpret_cast<const float4*>(p);
  v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}
__device__ __forceinline__ void load4(const bf16* p, float (&v)[4]) {
  const uint2 q = *reinterpret_cast<const uint2*>(p);
  v[0] = __uint_as_float(q.x << 16), v[1] = __uint_as_float(q.x & 0xffff0000u);
  v[2] = __uint_as_float(q.y << 16), v[3] = __uint_as_float(q.y & 0xffff0000u);
}
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);  // one instruction
  return __bfloat16_as_ushort(pair.x) | static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}
__device__ __forceinline__ void store4(float* p, const float (&v)[4]) {
  *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
}
__device__ __forceinline__ void store4(bf16* p, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(p) = make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
}
/// True when each row of a matrix may be read and written four elements at a time, up to the last whole four.
inline bool rows_aligned4(const void* p, int64_t stride, DType t) {
  const size_t quad = 4 * size_of(t);
  return reinterpret_cast<uintptr_t>(p) % quad == 0 && static_cast<size_t>(stride) % 4 == 0;
}

#if defined(__CUDACC__)  // cuda_on_cpu.h has the same for the host
/// c += a * b on a tensor core: mma.sync.m16n8k16 of bf16 with f32 sums, by all lanes of a warp. With g = lane / 4 and
/// t = lane % 4 a lane holds, in pairs of neighbours along k with the lower one in the low half:
///   a[0], a[1]: rows g, g + 8, k from 2 t;  a[2], a[3]: the same rows, k from 2 t + 8
///   b0, b1:     column g, k from 2 t and from 2 t + 8
///   c[0 .. 3]:  row g, columns 2 t and 2 t + 1, then row g + 8
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Four 8 x 8 matrices of 16-bit elements from shared memory, by all lanes: lane i points to row i % 8 of matrix i / 8,
/// 16 aligned bytes. r[m]: elements 2 t and 2 t + 1 of row g of matrix m; `trans`: rows 2 t and 2 t + 1 of column g.
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
/// Starts a copy of 16 aligned bytes from global to shared memory, zeros unless `inside` (`from` is not read then). The
/// target holds nothing of use until the thread has waited; other threads see it after a barrier that follows.
__device__ __forceinline__ void copy_async16(void* to, const void* from, bool inside) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
      : "memory");
}
/// Closes a group of this thread's copies; wait<N> returns when at most the N youngest groups are on their way.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/// 2^x within 2^-22 of it, 0 where that is no normal number.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

template <class T>
__device__ __forceinline__ T warp_sum(T v) {
  CU_UNROLL
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
/// Sum over the block, float or double, returned to every thread. `shared` is room for 32; two barriers.
template <class T>
__device__ __forceinline__ T block_sum(T v, T* shared) {
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  v = warp_sum(v);
  __syncthreads();  // shared may still be read from an earlier call
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : T(0));
}
__device__ __forceinline__ float warp_max(float v) {
  CU_UNROLL
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
/// Maximum over the block, as block_sum; NaN is passed over.
__device__ __forceinline__ float block_max(float v, float* shared) {
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  v = warp_max(v);
  __syncthreads();  // shared may still be read from an earlier call
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  return warp_max(shared[lane < warps ? lane : 0]);
}

}  // namespace bantam::cuda
