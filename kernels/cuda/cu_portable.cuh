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
  return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
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
