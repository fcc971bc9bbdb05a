// SPDX-License-Identifier: Apache-2.0
// The emulation itself: its primitives against their definition.
#include "cuda_on_cpu_harness.h"
// The portable header comes first.
#include <cmath>

using namespace bantam;
using namespace bantam::cuda;
using namespace bantam::cuda::test;

namespace {

// ---- primitives ----

__global__ void warp_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x), v = 100 + lane;
  int* p = out + lane * 5;
  p[0] = __shfl_sync(0xffffffffu, v, lane + 5);
  p[1] = __shfl_xor_sync(0xffffffffu, v, 6);
  p[2] = __shfl_down_sync(0xffffffffu, v, 3);
  p[3] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  p[4] = static_cast<int>(warp_sum(1.0f) + warp_sum(static_cast<float>(lane)));
}
TEST_CASE("warp collectives") {
  const Device<int> out(32 * 5);
  launch(warp_kernel, 1, 32, 0, out.get());
  const auto h = out.host();
  for (int lane = 0; lane < 32; ++lane) {
    const int* p = &h[static_cast<size_t>(lane) * 5];
    CHECK(p[0] == 100 + (lane + 5) % 32);
    CHECK(p[1] == 100 + (lane ^ 6));
    CHECK(p[2] == 100 + (lane + 3 < 32 ? lane + 3 : lane));
    CHECK(static_cast<unsigned>(p[3]) == 0x49249249u);
    CHECK(p[4] == 32 + 496);
  }
}

__global__ void index_kernel(unsigned* out) {
  const unsigned block = blockIdx.x, thread = threadIdx.x;
  out[block * blockDim.x + thread] = gridDim.x * 10000 + block * 1000 + thread;
}
TEST_CASE("grid and block indices") {
  const Device<unsigned> out(5 * 64);
  launch(index_kernel, 5, 64, 0, out.get());
  const auto h = out.host();
  for (unsigned i = 0; i < h.size(); ++i) CHECK(h[i] == 50000 + i / 64 * 1000 + i % 64);
}

__global__ void block_sum_kernel(float* out) {
  CU_SHARED(float, shared, [32]);
  CU_DYN_SHARED(float, reversed);
  const unsigned t = threadIdx.x;
  reversed[t] = static_cast<float>(t);
  const float first = block_sum(static_cast<float>(t), shared);
  const float second = block_sum(reversed[blockDim.x - 1 - t], shared);
  out[blockIdx.x * blockDim.x + t] = first - second + reversed[blockDim.x - 1 - t];
}
TEST_CASE("block_sum, static and dynamic shared memory") {
  for (const int threads : {32, 96, 1024}) {
    const Device<float> out(static_cast<size_t>(3 * threads));
    launch(block_sum_kernel, 3, threads, static_cast<size_t>(threads) * sizeof(float), out.get());
    const auto h = out.host();
    for (size_t i = 0; i < h.size(); ++i)
      CHECK(h[i] == static_cast<float>(threads - 1 - static_cast<int>(i) % threads));
  }
}

__global__ void block_max_kernel(const float* in, float* out) {
  CU_SHARED(float, shared, [32]);
  const unsigned t = threadIdx.x;
  const float first = block_max(in[t], shared), second = block_max(-in[t], shared);
  out[2 * t] = first;
  out[2 * t + 1] = second;
}
__global__ void block_sum_double_kernel(double* out) {
  CU_SHARED(double, shared, [32]);
  out[threadIdx.x] = block_sum(1.0 + static_cast<double>(threadIdx.x) * 0x1p-40, shared);
}
TEST_CASE("block_max, and block_sum of doubles") {
  for (const int threads : {32, 96, 1024}) {
    const auto n = static_cast<size_t>(threads);
    for (const size_t at : {size_t{0}, size_t{31}, n - 1}) {  // all are negative, the largest is here
      std::vector<float> in(n);
      for (size_t i = 0; i < n; ++i) in[i] = i == at ? -0.5f : -2.0f - static_cast<float>(i);
      const Device<float> from(in), to(2 * n);
      launch(block_max_kernel, 1, threads, 0, from.get(), to.get());
      const auto h = to.host();
      for (size_t i = 0; i < n; ++i) {
        CHECK(h[2 * i] == -0.5f);
        CHECK(h[2 * i + 1] == 2.0f + static_cast<float>(at == n - 1 ? n - 2 : n - 1));
      }
    }
    const Device<double> sum(n);
    launch(block_sum_double_kernel, 1, threads, 0, sum.get());
    const double want = static_cast<double>(n) + static_cast<double>(n * (n - 1) / 2) * 0x1p-40;
    for (const double v : sum.host()) CHECK(v == want);
  }
}

__global__ void big_shared_kernel(int* out, int n) {
  CU_DYN_SHARED(int, p);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) p[i] = i;
  __syncthreads();
  out[threadIdx.x] = p[n - 1 - static_cast<int>(threadIdx.x)];
}
TEST_CASE("more than 48 KiB of shared memory is opted in to, more than 99 is refused") {
  const Device<int> out(32);
  launch(big_shared_kernel, 1, 32, 80 * 1024, out.get(), 20 * 1024);
  CHECK(out.host()[31] == 20 * 1024 - 32);
  CHECK_THROWS_AS(launch(big_shared_kernel, 1, 32, 120 * 1024, out.get(), 64), Error);
}

template <class T>
__global__ void quads_kernel(const T* in, T* out) {
  float v[4];
  load4(in + 4 * threadIdx.x, v);
  for (float& x : v) x += 1.0f;
  store4(out + 4 * threadIdx.x, v);
  if (threadIdx.x == 0) store(out + 128, load(in + 128) + 1.0f);
}
template <class T>
void check_quads() {
  std::vector<T> in(129);
  for (size_t i = 0; i < in.size(); ++i) in[i] = from_f32<T>(static_cast<float>(i) * 1.03125f);
  const Device<T> from(in), to(in.size());
  launch(quads_kernel<T>, 1, 32, 0, from.get(), to.get());
  const auto h = to.host();
  for (size_t i = 0; i < in.size(); ++i) CHECK(to_f32(h[i]) == to_f32(from_f32<T>(to_f32(in[i]) + 1.0f)));
}
TEST_CASE("loads and stores of four") {
  check_quads<float>();
  check_quads<bf16>();
}

// ---- tensor cores and asynchronous copies ----

// Fragments as the PTX ISA names them: element i of a lane is at these rows and columns.
__device__ int a_row(int lane, int i) {
  return lane / 4 + ((i < 2 || (i >= 4 && i < 6)) ? 0 : 8);
}
__device__ int a_column(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
__device__ int b_row(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
}
__device__ uint32_t pair_of(const bf16* low, const bf16* high) {
  return low->bits | static_cast<uint32_t>(high->bits) << 16;
}
__global__ void mma_kernel(const bf16* a, const bf16* b, const float* c, float* d) {  // row-major 16 x 16, 16 x 8
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t left[4], right[2];
  for (int i = 0; i < 8; i += 2)
    left[i / 2] =
        pair_of(a + a_row(lane, i) * 16 + a_column(lane, i), a + a_row(lane, i + 1) * 16 + a_column(lane, i + 1));
  for (int i = 0; i < 4; i += 2)
    right[i / 2] = pair_of(b + b_row(lane, i) * 8 + lane / 4, b + b_row(lane, i + 1) * 8 + lane / 4);
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
  mma_bf16(sums, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}
TEST_CASE("a tensor core's product, laid out as the PTX ISA says") {
  std::vector<bf16> a(16 * 16), b(16 * 8);
  std::vector<float> c(16 * 8);
  unsigned state = 1;
  const auto next = [&] {  // small integers: every order of the sum is exact
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 26) - 32.0f;
  };
  for (auto& x : a) x = to_bf16(next());
  for (auto& x : b) x = to_bf16(next());
  for (auto& x : c) x = next();
  const Device<bf16> da(a), db(b);
  const Device<float> dc(c), dd(c.size());
  launch(mma_kernel, 1, 32, 0, da.get(), db.get(), dc.get(), dd.get());
  const auto d = dd.host();
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      float want = c[i * 8 + j];
      for (size_t k = 0; k < 16; ++k) want += to_f32(a[i * 16 + k]) * to_f32(b[k * 8 + j]);
      CHECK(d[i * 8 + j] == want);
    }
}

// Element (r, c) of matrix m is 64 m + 8 r + c; rows lie 9 chunks apart.
__global__ void ldmatrix_kernel(uint32_t* out) {
  CU_DYN_SHARED(uint16_t, shared);
  const int lane = static_cast<int>(threadIdx.x);
  uint16_t* const row = shared + lane * 72;
  for (int i = 0; i < 8; ++i) row[i] = static_cast<uint16_t>(8 * lane + i);
  __syncwarp();
  uint32_t r[4];
  ldmatrix(r, row);
  for (int m = 0; m < 4; ++m) out[lane * 8 + m] = r[m];
  ldmatrix_trans(r, row);
  for (int m = 0; m < 4; ++m) out[lane * 8 + 4 + m] = r[m];
}
TEST_CASE("ldmatrix, plain and transposed") {
  const Device<uint32_t> out(32 * 8);
  launch(ldmatrix_kernel, 1, 32, 32 * 72 * sizeof(uint16_t), out.get());
  const auto h = out.host();
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned m = 0; m < 4; ++m) {
      const auto element = [&](unsigned r, unsigned c) { return 64 * m + 8 * r + c; };
      const unsigned g = lane / 4, t = lane % 4 * 2;
      CHECK(h[lane * 8 + m] == (element(g, t) | element(g, t + 1) << 16));
      CHECK(h[lane * 8 + 4 + m] == (element(t, g) | element(t + 1, g) << 16));
    }
}

__global__ void copies_kernel(const float4* in, float4* out) {
  CU_DYN_SHARED(float4, shared);
  const unsigned t = threadIdx.x;
  copy_async16(shared + t, in + t, true);
  copy_async16(shared + 64 + t, in, false);
  copy_async_commit();
  copy_async16(shared + 128 + t, in + 64 + t, true);
  copy_async_commit();
  copy_async_wait<1>();
  __syncthreads();
  out[t] = shared[63 - t];
  out[64 + t] = shared[127 - t];
  copy_async_wait<0>();
  __syncthreads();
  out[128 + t] = shared[191 - t];
}
TEST_CASE("asynchronous copies arrive group by group") {
  std::vector<float4> in(128);
  for (size_t i = 0; i < in.size(); ++i) in[i] = make_float4(static_cast<float>(i), 1, 2, 3);
  const Device<float4> from(in), to(192);
  launch(copies_kernel, 1, 64, 192 * sizeof(float4), from.get(), to.get());
  const auto h = to.host();
  for (size_t i = 0; i < 64; ++i) {
    CHECK(h[i].x == static_cast<float>(63 - i));
    CHECK(h[i].w == 3);
    CHECK(h[64 + i].x == 0);
    CHECK(h[64 + i].w == 0);
    CHECK(h[128 + i].x == static_cast<float>(127 - i));
  }
}
__global__ void exp2_kernel(const float* in, float* out) {
  out[threadIdx.x] = exp2_approx(in[threadIdx.x]);
}
TEST_CASE("exp2_approx") {
  std::vector<float> in(32);
  for (size_t i = 0; i < in.size(); ++i) in[i] = -150.0f + 9.3f * static_cast<float>(i);
  in[30] = -INFINITY;
  in[31] = std::nanf("");
  const Device<float> from(in), to(in.size());
  launch(exp2_kernel, 1, 32, 0, from.get(), to.get());
  const auto h = to.host();
  for (size_t i = 0; i < 30; ++i) {
    const double want = std::exp2(static_cast<double>(in[i]));
    CHECK(std::fabs(h[i] - want) <= (in[i] < -126 ? 0x1p-126 : want * 0x1p-22));
  }
  CHECK(h[30] == 0);
  CHECK(std::isnan(h[31]));
}

}  // namespace
