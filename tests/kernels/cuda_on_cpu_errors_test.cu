// SPDX-License-Identifier: Apache-2.0
// That the emulated device sees deliberate errors: missing barriers and waits, divergence, wrong launches and pointers.
#include "cuda_on_cpu_harness.h"
// The portable header comes first.
#include <cstdlib>

using namespace bantam;
using namespace bantam::cuda;
using namespace bantam::cuda::test;

namespace {

__global__ void missing_barrier_kernel(float* out, unsigned shift) {
  CU_SHARED(float, shared, [64]);
  shared[threadIdx.x] = 1.0f;
  out[threadIdx.x] = shared[(threadIdx.x + shift) % 64];  // a barrier is missing before
}
#if defined(__SANITIZE_THREAD__)
TEST_CASE("deliberate race" * doctest::skip()) {
  const Device<float> out(64);
  launch(missing_barrier_kernel, 1, 64, 0, out.get(), 1u);
}
TEST_CASE("ThreadSanitizer sees a missing barrier") {  // in a fresh process: a forked one no longer looks
  check_words("data race", [] { execl("/proc/self/exe", "test", "-tc=deliberate race", "--no-skip", nullptr); });
}
#else
TEST_CASE("a missing barrier shows as NaN, to the neighbour above or below") {
  int nans = 0;
  for (const unsigned shift : {1u, 63u}) {
    const Device<float> out(64);
    launch(missing_barrier_kernel, 1, 64, 0, out.get(), shift);
    for (const float v : out.host()) nans += v != v;
  }
  CHECK(nans > 0);
}

// A row is written by the neighbour above or below of the lane that points to it; a barrier is missing in between.
__global__ void missing_syncwarp_kernel(float* out, unsigned shift) {
  CU_DYN_SHARED(float4, shared);
  const unsigned lane = threadIdx.x;
  shared[(lane + shift) % 32] = make_float4(1, 1, 1, 1);
  uint32_t r[4];
  ldmatrix(r, shared + lane);
  for (int m = 0; m < 4; ++m) out[lane * 4 + static_cast<unsigned>(m)] = __uint_as_float(r[m]);
}
// A tile is read before its copies arrived, or filled anew while others may still read it.
__global__ void missing_wait_kernel(const float4* in, float* out) {
  CU_DYN_SHARED(float4, shared);
  copy_async16(shared + threadIdx.x, in + threadIdx.x, true);
  copy_async_commit();
  __syncthreads();
  out[threadIdx.x] = shared[63 - threadIdx.x].x;
  copy_async_wait<0>();
}
__global__ void early_copy_kernel(const float4* in, float* out, unsigned shift) {
  CU_DYN_SHARED(float4, shared);
  shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + shift) % 64].x;  // a barrier is missing after
  copy_async16(shared + threadIdx.x, in + threadIdx.x, true);
  copy_async_commit();
  __syncthreads();
  copy_async_wait<0>();
}
int count_nans(const std::vector<float>& v) {
  int n = 0;
  for (const float x : v) n += x != x;
  return n;
}
TEST_CASE("ldmatrix and asynchronous copies without their barriers show as NaN") {
  int lanes = 0, early = 0;
  for (const unsigned shift : {1u, 31u}) {
    const Device<float> out(128);
    launch(missing_syncwarp_kernel, 1, 32, 32 * sizeof(float4), out.get(), shift);
    lanes += count_nans(out.host());
  }
  CHECK(lanes > 0);
  const Device<float4> in(std::vector<float4>(64, make_float4(1, 1, 1, 1)));
  const Device<float> out(64);
  launch(missing_wait_kernel, 1, 64, 64 * sizeof(float4), in.get(), out.get());
  CHECK(count_nans(out.host()) > 0);
  for (const unsigned shift : {1u, 63u}) {
    launch(early_copy_kernel, 1, 64, 64 * sizeof(float4), in.get(), out.get(), shift);
    early += count_nans(out.host());
  }
  CHECK(early > 0);
}
#endif

__global__ void uninitialised_kernel(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x];
}
TEST_CASE("memory that nobody wrote is NaN") {
  const Device<float> in(32), out(32);
  launch(uninitialised_kernel, 1, 32, 0, in.get(), out.get());
  CHECK(out.host()[7] != out.host()[7]);
}

__global__ void divergent_barrier_kernel(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void two_barriers_kernel(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();
  }
}
__global__ void divergent_shuffle_kernel(int* out) {
  int v = 1;
  if (threadIdx.x % 2) v = __shfl_xor_sync(0xffffffffu, v, 1);
  out[threadIdx.x] = v;
}
__global__ void partial_mask_kernel(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1);
}
__global__ void plain_kernel(int* out) {
  out[threadIdx.x] = 1;
}
__global__ void pointer_kernel(const int* in, int* out) {
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void ldmatrix_of_kernel(uint32_t* global, int offset) {
  CU_DYN_SHARED(char, shared);
  uint32_t r[4] = {};
  if (offset < 0)
    ldmatrix(r, global);
  else
    ldmatrix(r, shared + offset);
  global[threadIdx.x] = r[0];
}
__global__ void pending_copy_kernel(const float4* in) {
  CU_DYN_SHARED(float4, shared);
  copy_async16(shared + threadIdx.x, in + threadIdx.x, true);
}
__global__ void divergent_mma_kernel(float* out) {
  float c[4] = {};
  const uint32_t a[4] = {};
  if (threadIdx.x % 2) mma_bf16(c, a, 0, 0);
  out[threadIdx.x] = c[0];
}
TEST_CASE("wrong uses of ldmatrix, asynchronous copies and tensor cores are reported") {
  const Device<uint32_t> out(32);
  const Device<float4> in(32);
  check_words("not aligned to 16 bytes", [&] { launch(ldmatrix_of_kernel, 1, 32, 1024, out.get(), 8); });
  check_words("not in shared memory", [&] { launch(ldmatrix_of_kernel, 1, 32, 1024, out.get(), -1); });
  check_words("not in shared memory", [&] { launch(ldmatrix_of_kernel, 1, 32, 1024, out.get(), 1024); });
  check_words("has not waited for", [&] { launch(pending_copy_kernel, 1, 32, 512, in.get()); });
  check_words("wait in mma_bf16 at ",
              [&] { launch(divergent_mma_kernel, 1, 32, 0, reinterpret_cast<float*>(out.get())); });
}

TEST_CASE("divergence is reported with its place") {
  const Device<int> out(64);
  check_words("32 thread(s), 32..63, returned from the kernel",
              [&] { launch(divergent_barrier_kernel, 1, 64, 0, out.get()); });
  check_words("divergent barrier", [&] { launch(two_barriers_kernel, 1, 64, 0, out.get()); });
  check_words("wait in __shfl_sync at ", [&] { launch(divergent_shuffle_kernel, 1, 32, 0, out.get()); });
  check_words("only the full mask", [&] { launch(partial_mask_kernel, 1, 32, 0, out.get()); });
}
TEST_CASE("wrong launches, pointers and copies are reported") {
  const Device<int> out(64);
  std::vector<int> host(64);
  check_words("a grid of 0 blocks at cuda_on_cpu_errors_test.cu:", [&] { launch(plain_kernel, 0, 32, 0, out.get()); });
  check_words("cudaErrorInvalidConfiguration", [&] { launch(plain_kernel, 1, 1056, 0, out.get()); });
  check_words("a multiple of 32", [&] { launch(plain_kernel, 1, 33, 0, out.get()); });
  check_words("is not a device pointer", [&] { launch(pointer_kernel, 1, 32, 0, host.data(), out.get()); });
  check_words("beyond an allocation", [&] { download(host.data(), out.get() + 1, 64 * sizeof(int)); });
  check_words("wrong direction", [&] { upload(host.data(), host.data(), 4); });
  check_words("freed twice", [&] {
    void* p = allocate(8);
    release(p);
    cu_check(cudaFree(p), "cudaFree");
  });
  check_words("is not a device pointer", [&] {
    int* p = static_cast<int*>(allocate(256));
    release(p);
    launch(plain_kernel, 1, 32, 0, p);
  });
  CHECK(last_words([&] { launch(plain_kernel, 1, 32, 0, out.get()); }) == "");
}
#if defined(__SANITIZE_ADDRESS__)
__global__ void beyond_kernel(int* out, unsigned n) {
  out[threadIdx.x + n] = 1;
}
__global__ void beyond_shared_kernel(int* out, unsigned n) {
  CU_SHARED(int, shared, [32]);
  int* p = shared;
  p[threadIdx.x + n] = 1;
  out[threadIdx.x] = shared[threadIdx.x];
}
TEST_CASE("AddressSanitizer sees kernels that write beyond their memory") {
  const Device<int> out(32);
  check_words("AddressSanitizer", [&] { launch(beyond_kernel, 1, 32, 0, out.get(), 1u); });
  check_words("AddressSanitizer", [&] { launch(beyond_shared_kernel, 1, 32, 0, out.get(), 1u); });
  CHECK(last_words([&] { launch(beyond_kernel, 1, 32, 0, out.get(), 0u); }) == "");
}
#endif
TEST_CASE("a guarded device pointer may not be read by the host") {
  const char* guard = getenv("COC_GUARD");
  if (!guard) return;  // a switch of the whole process; set in one of the three runs of this program
  const Device<int> out(64);
  check_words(str("signal ", SIGSEGV), [&] {
    volatile int v = *static_cast<volatile int*>(out.get());
    static_cast<void>(v);
  });
}

}  // namespace
