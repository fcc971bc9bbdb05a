// SPDX-License-Identifier: Apache-2.0
// The emulation itself: its primitives against their definition, and that it sees deliberate errors.
#include "cuda_on_cpu_harness.h"
// The portable header comes first.
#include <cmath>
#include <cstdlib>

#include "kernels/cuda/lt_matmul.h"

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

TEST_CASE("cuBLASLt: c = alpha a b + beta c in both layouts, types and with row strides") {
  constexpr int64_t kM = 5, kN = 3, kK = 4;
  const auto a_at = [](int64_t i, int64_t k) { return static_cast<float>(i - 2 * k); };
  const auto b_at = [](int64_t k, int64_t j) { return static_cast<float>(3 * k - j); };
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const DType c_type : {DType::f32, DType::bf16}) {
        const int64_t a_stride = (a_transposed ? kM : kK) + 3, b_stride = (b_transposed ? kK : kN) + 1;
        std::vector<bf16> a(static_cast<size_t>(8 * 8)), b(a);
        for (int64_t i = 0; i < kM; ++i)
          for (int64_t k = 0; k < kK; ++k)
            a[static_cast<size_t>(a_transposed ? k * a_stride + i : i * a_stride + k)] = to_bf16(a_at(i, k));
        for (int64_t k = 0; k < kK; ++k)
          for (int64_t j = 0; j < kN; ++j)
            b[static_cast<size_t>(b_transposed ? j * b_stride + k : k * b_stride + j)] = to_bf16(b_at(k, j));
        const Device<bf16> da(a), db(b);
        const Device<char> scratch(kLtWorkspace);
        const LtProduct p{
            kM,     kN, kK, DType::bf16, {da.get(), a_stride, a_transposed}, {db.get(), b_stride, b_transposed},
            c_type, kN};
        const auto check = [&]<class C>(std::vector<C> c) {
          for (auto& v : c) v = from_f32<C>(2.0f);
          const Device<C> dc(c);
          lt_matmul(p, 0.5f, 1.0f, dc.get(), scratch.get());
          c = dc.host();
          for (int64_t i = 0; i < kM; ++i)
            for (int64_t j = 0; j < kN; ++j) {
              float want = 0;
              for (int64_t k = 0; k < kK; ++k) want += a_at(i, k) * b_at(k, j);
              CHECK(to_f32(c[static_cast<size_t>(i * kN + j)]) == 0.5f * want + 2.0f);
            }
        };
        if (c_type == DType::f32)
          check(std::vector<float>(kM * kN));
        else
          check(std::vector<bf16>(kM * kN));
      }
  // What the library would refuse is refused in words.
  const Device<float> f(64);
  const Device<char> scratch(kLtWorkspace);
  const LtProduct p{2, 2, 2, DType::f32, {f.get(), 2, false}, {f.get(), 2, false}, DType::bf16, 2};
  CHECK_THROWS_WITH(lt_matmul(p, 1.0f, 0.0f, f.get(), scratch.get()),
                    "cuBLASLt has no algorithm for a product of 2 x 2 by 2 x 2 (operands f32, result bf16): "
                    "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST_CASE("cuBLASLt: products with one algorithm_m add up a row in one order") {
  constexpr int64_t kRows = 3, kN = 4, kK = 200;
  std::vector<float> values(static_cast<size_t>(kN * kK));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(1 + i * i % 97);
  const Device<float> a(values), b(values), c(static_cast<size_t>(kRows * kN));
  const Device<char> scratch(kLtWorkspace);
  const auto first_row = [&](int64_t m, int64_t algorithm_m) {
    LtProduct p{m, kN, kK, DType::f32, {a.get(), kK, false}, {b.get(), kN, false}, DType::f32, kN};
    p.algorithm_m = algorithm_m;
    lt_matmul(p, 1.0f, 0.0f, c.get(), scratch.get());
    auto h = c.host();
    h.resize(kN);
    return h;
  };
  setenv("COC_LT_BY_SHAPE", "1", 1);  // as the real library may
  CHECK(first_row(1, 0) != first_row(kRows, 0));
  const auto one = first_row(1, 512);
  CHECK(one == first_row(kRows, 512));
  CHECK(one == first_row(kRows, 515));  // the emulated orders repeat every three rows
  unsetenv("COC_LT_BY_SHAPE");
}

// ---- deliberate errors ----

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
  check_words("a grid of 0 blocks at cuda_on_cpu_test.cu:", [&] { launch(plain_kernel, 0, 32, 0, out.get()); });
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
