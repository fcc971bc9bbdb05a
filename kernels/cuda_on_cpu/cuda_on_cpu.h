// SPDX-License-Identifier: Apache-2.0
// Runs CUDA C++ kernels on the CPU, for tests on machines without a GPU. cu_portable.cuh includes this when a kernel
// file is compiled by a host compiler. Types and prototypes are the toolkit's own headers; what only nvcc knows is
// here. One CUDA thread is one fiber; the fibers of a block share one host thread and switch only inside barriers and
// warp collectives, in an order (COC_SCHED=fwd|rev|rand:SEED) in which a missing barrier shows. See README.md.
#pragma once
#if defined(__CUDACC__)
#error "for host compilers; include cu_portable.cuh instead"
#endif
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// host_defines.h makes __global__, __device__, __host__ and __constant__ vanish for host compilers.
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#undef __shared__
#define CU_UNROLL
#define CU_UNROLL_BY(n)
// Per-block memory: poisoned at the start of each block, with red zones under AddressSanitizer.
#define CU_SHARED(T, name, ...)                                                                                   \
  static const unsigned name##_coc_slot = ::coc::shared_slot(sizeof(std::type_identity_t<T __VA_ARGS__>), #name); \
  auto& name = *static_cast<std::type_identity_t<T __VA_ARGS__>*>(::coc::shared_ptr(name##_coc_slot))
#define CU_DYN_SHARED(T, name) T* const name = static_cast<T*>(::coc::dyn_shared())

// Call sites, for messages about divergence.
#define COC_SITE const char *coc_file = __builtin_FILE(), int coc_line = __builtin_LINE()

extern uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace coc {

enum Op : int { kShuffle, kBallot, kSyncWarp, kBarrier, kMma, kLdmatrix };

struct Slot {
  alignas(16) uint32_t word[8];  // what one lane shows to its warp in one collective
};
struct Warp {
  Slot slot[2][32];  // collectives alternate between two sets, so one rendezvous each is enough
  unsigned arrived;
  Op op;
  const char* file;
  int line, index;
};
struct AsyncCopy {  // of 16 bytes; from is null for zeros
  void* to;
  const void* from;
  unsigned group;
};
struct Lane {  // one CUDA thread
  void* sp;
  Warp* warp;
  int lane;
  unsigned phase;  // number of warp collectives executed
  uint3 tid;
  Op op;  // where it waits, for messages
  const char* file;
  int line;
  std::vector<AsyncCopy> copies;  // on their way
  unsigned copy_group;            // the open one
};
extern Lane* cur;

void warp_meet(Op op, unsigned mask, const char* file, int line);
void block_meet(const char* file, int line);
unsigned shared_slot(size_t size, const char* name);
void* shared_ptr(unsigned slot);
void* dyn_shared();
/// Ends the program unless the 16 bytes at p are aligned and, when `shared`, in the block's shared memory.
void check_16_bytes(const void* p, bool shared, const char* what, const char* file, int line);
/// Takes over `args`; they are destroyed after the run, or at once when the launch is refused.
cudaError_t launch_raw(const cudaLaunchConfig_t& config, const void* kernel, void (*call)(void*), void* args,
                       void (*destroy)(void*), const void* const* pointers, int num_pointers);

// Relaxed atomics keep ThreadSanitizer quiet about the slots without making a collective look like a memory barrier,
// which on a GPU it is not.
inline void put(Slot& s, const void* v, size_t n) {
  for (size_t i = 0; i < n; i += 4) {
    uint32_t w = 0;
    __builtin_memcpy(&w, static_cast<const char*>(v) + i, n - i < 4 ? n - i : 4);
    __atomic_store_n(s.word + i / 4, w, __ATOMIC_RELAXED);
  }
}
inline void get(const Slot& s, void* v, size_t n) {
  for (size_t i = 0; i < n; i += 4) {
    const uint32_t w = __atomic_load_n(s.word + i / 4, __ATOMIC_RELAXED);
    __builtin_memcpy(static_cast<char*>(v) + i, &w, n - i < 4 ? n - i : 4);
  }
}
template <class T>
T exchange(unsigned mask, const T& v, int source, const char* file, int line) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Slot));
  Slot* slots = cur->warp->slot[cur->phase & 1];
  put(slots[cur->lane], &v, sizeof v);
  warp_meet(kShuffle, mask, file, line);
  T r;
  get(slots[source], &r, sizeof r);
  return r;
}

template <class... P>
struct Call {
  void (*kernel)(P...);
  std::tuple<P...> args;
  static void run(void* self) {
    auto* c = static_cast<Call*>(self);
    std::apply(c->kernel, c->args);
  }
  static void destroy(void* self) { delete static_cast<Call*>(self); }
};
// Stands in for cudaLaunchKernelEx (see the #define below); pointer arguments are checked to be device pointers.
template <class... P, class... A>
cudaError_t launch_ex(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "kernel arguments are copied bytewise");
  auto* c = new Call<P...>{kernel, {static_cast<P>(args)...}};
  const void* pointers[sizeof...(P) + 1];
  int n = 0;
  const auto note = [&]<class T>(const T& a) {
    if constexpr (std::is_pointer_v<T>) pointers[n++] = a;
  };
  std::apply([&](const auto&... a) { (note(a), ...); }, c->args);
  return launch_raw(*config, reinterpret_cast<const void*>(kernel), &Call<P...>::run, c, &Call<P...>::destroy, pointers,
                    n);
}
}  // namespace coc
#define cudaLaunchKernelEx ::coc::launch_ex

// ---- barriers and warp collectives (full mask only) ----
inline void __syncthreads(COC_SITE) {
  coc::block_meet(coc_file, coc_line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, COC_SITE) {
  coc::warp_meet(coc::kSyncWarp, mask, coc_file, coc_line);
}
template <class T>
T __shfl_sync(unsigned mask, T v, int source, COC_SITE) {
  return coc::exchange(mask, v, source & 31, coc_file, coc_line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int x, COC_SITE) {
  return coc::exchange(mask, v, (coc::cur->lane ^ x) & 31, coc_file, coc_line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, COC_SITE) {  // a source beyond the warp: the own value
  const int source = coc::cur->lane + static_cast<int>(delta);
  return coc::exchange(mask, v, source > 31 ? coc::cur->lane : source, coc_file, coc_line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, COC_SITE) {
  coc::Slot* slots = coc::cur->warp->slot[coc::cur->phase & 1];
  uint32_t v = predicate != 0, r = 0;
  coc::put(slots[coc::cur->lane], &v, sizeof v);
  coc::warp_meet(coc::kBallot, mask, coc_file, coc_line);
  for (int i = 0; i < 32; ++i) {
    coc::get(slots[i], &v, sizeof v);
    r |= v << i;
  }
  return r;
}

// ---- tensor cores and asynchronous copies: cu_portable.cuh describes them ----
namespace bantam::cuda {
inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, COC_SITE) {
  struct Operands {
    uint32_t a[4], b[2];
  };
  coc::Slot* slots = coc::cur->warp->slot[coc::cur->phase & 1];
  const int lane = coc::cur->lane;
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  coc::put(slots[lane], &mine, sizeof mine);
  coc::warp_meet(coc::kMma, 0xffffffffu, coc_file, coc_line);
  const auto half = [](uint32_t pair, int i) { return std::bit_cast<float>(i ? pair & 0xffff0000u : pair << 16); };
  float rows[2][16], columns[2][16];
  for (int t = 0; t < 4; ++t) {
    Operands from, left, right;  // left: column 2 * (lane % 4); right: the next
    coc::get(slots[lane / 4 * 4 + t], &from, sizeof from);
    coc::get(slots[lane % 4 * 8 + t], &left, sizeof left);
    coc::get(slots[lane % 4 * 8 + 4 + t], &right, sizeof right);
    for (int i = 0; i < 4; ++i) {  // i: which half of a pair, which half of k
      const int k = i / 2 * 8 + 2 * t + i % 2;
      rows[0][k] = half(from.a[i / 2 * 2], i % 2);
      rows[1][k] = half(from.a[i / 2 * 2 + 1], i % 2);
      columns[0][k] = half(left.b[i / 2], i % 2);
      columns[1][k] = half(right.b[i / 2], i % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double sum = c[i];  // products are exact
    for (int k = 0; k < 16; ++k) sum += static_cast<double>(rows[i / 2][k]) * columns[i % 2][k];
    c[i] = static_cast<float>(sum);
  }
}
// Each lane's row is read when the lane arrives: what another lane writes needs a barrier before, as on the device.
inline const coc::Slot* show_row(const void* row, const char* file, int line) {
  coc::check_16_bytes(row, true, "ldmatrix", file, line);
  coc::Slot* slots = coc::cur->warp->slot[coc::cur->phase & 1];
  uint32_t words[4];
  __builtin_memcpy(words, row, sizeof words);
  coc::put(slots[coc::cur->lane], words, sizeof words);
  coc::warp_meet(coc::kLdmatrix, 0xffffffffu, file, line);
  return slots;
}
inline void ldmatrix(uint32_t (&r)[4], const void* row, COC_SITE) {
  const coc::Slot* slots = show_row(row, coc_file, coc_line);
  const int lane = coc::cur->lane;
  for (int m = 0; m < 4; ++m) {
    uint32_t words[4];
    coc::get(slots[8 * m + lane / 4], words, sizeof words);
    r[m] = words[lane % 4];
  }
}
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row, COC_SITE) {
  const coc::Slot* slots = show_row(row, coc_file, coc_line);
  const int column = coc::cur->lane / 4, first = coc::cur->lane % 4 * 2;
  for (int m = 0; m < 4; ++m) {
    uint16_t upper[8], lower[8];
    coc::get(slots[8 * m + first], upper, sizeof upper);
    coc::get(slots[8 * m + first + 1], lower, sizeof lower);
    r[m] = upper[column] | static_cast<uint32_t>(lower[column]) << 16;
  }
}
// The bytes arrive when the thread waits; until then the target is NaN, so neither an early read nor a target that is
// still in use goes unnoticed.
inline void copy_async16(void* to, const void* from, bool inside, COC_SITE) {
  coc::check_16_bytes(to, true, "the target of copy_async16", coc_file, coc_line);
  coc::check_16_bytes(from, false, "the source of copy_async16", coc_file, coc_line);
  __builtin_memset(to, 0xff, 16);
  coc::cur->copies.push_back({to, inside ? from : nullptr, coc::cur->copy_group});
}
inline void copy_async_commit() {
  ++coc::cur->copy_group;
}
template <int N>
void copy_async_wait() {
  auto& copies = coc::cur->copies;
  size_t done = 0;
  for (; done < copies.size() && coc::cur->copy_group - copies[done].group > unsigned{N}; ++done) {
    const coc::AsyncCopy& c = copies[done];
    if (c.from)
      __builtin_memcpy(c.to, c.from, 16);
    else
      __builtin_memset(c.to, 0, 16);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
}
inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
}  // namespace bantam::cuda

// ---- what device code may call and the toolkit's headers do not give to a host compiler ----
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
