// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU attention, forward and backward, beside the product engine on a square f32 product in the same
// process.
//   bantam_attention_bench [--threads N] [--rounds N] [--heads N] [--kv-heads N] [--window N] [--softcap N]
// Counted: the products that a causal mask and the window leave, 2 in forward and 7 in backward (two passes).
// One thread is timed by its own CPU time, several by the wall clock; best of the rounds.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "kernels/attention.h"
#include "kernels/product.h"

using namespace bantam;

namespace {

int g_threads = 1, g_rounds = 7, g_window = 0, g_softcap = 0;

double now() {
  timespec t;
  clock_gettime(g_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double best_seconds(F f) {
  double best = 1e30;
  for (int i = 0; i < g_rounds; ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

Tensor random_matrix(DType dtype, int64_t rows, int64_t cols) {
  Tensor t(dtype, rows, cols);
  std::mt19937 bits(7);
  with_float_type(dtype, [&]<class T>() {
    for (int64_t i = 0; i < rows * cols; ++i)
      t.data<T>()[i] = from_f32<T>(static_cast<float>(bits()) * 0x1p-31f - 1.0f);
  });
  return t;
}

void bench(Context& ctx, DType dtype, int64_t t, int64_t heads, int64_t kv_heads, int64_t d) {
  const int32_t cu[2] = {0, static_cast<int32_t>(t)};
  const AttentionShape shape{
      cu, cu, 1, heads, kv_heads, d, 1.0f / std::sqrt(static_cast<float>(d)), g_window, static_cast<float>(g_softcap)};
  const Tensor q = random_matrix(dtype, t, heads * d), k = random_matrix(dtype, t, kv_heads * d);
  const Tensor v = random_matrix(dtype, t, kv_heads * d), dout = random_matrix(dtype, t, heads * d);
  Tensor o(dtype, t, heads * d), lse(DType::f32, t, heads), delta(DType::f32, t, heads);
  Tensor dq(dtype, t, heads * d), dk(dtype, t, kv_heads * d), dv(dtype, t, kv_heads * d);
  const Tensor a = random_matrix(DType::f32, 1024, 1024), b = random_matrix(DType::f32, 1024, 1024);
  Tensor c(DType::f32, 1024, 1024);
  ProductArgs square;
  square.terms[0] = {a, ConstTensorView(b), BLayout::nt};
  square.c = c;

  const int64_t window = g_window > 0 ? std::min<int64_t>(g_window, t) : t;
  const double pairs = static_cast<double>(window) * (static_cast<double>(t) - static_cast<double>(window) / 2);
  const double one = 2 * static_cast<double>(heads * d) * pairs;
  const double product_rate = 2.0 * 1024 * 1024 * 1024 / best_seconds([&] { product(ctx, square); }) / 1e9;
  const double forward = 2 * one / best_seconds([&] { attention(ctx, {shape, q, k, v, o, lse}); }) / 1e9;
  const double backward = 7 * one / best_seconds([&] {
                            attention_backward(ctx, {shape, q, k, v, o, lse, dout, delta, dq, dk, dv});
                          }) /
                          1e9;
  std::printf(
      "%s T %5ld heads %ld/%ld d %3ld   forward %6.1f GFLOP/s (%2.0f %%)   backward %6.1f GFLOP/s (%2.0f %%)   product "
      "%6.1f\n",
      name_of(dtype), static_cast<long>(t), static_cast<long>(heads), static_cast<long>(kv_heads), static_cast<long>(d),
      forward, 100 * forward / product_rate, backward, 100 * backward / product_rate, product_rate);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t heads = 9, kv_heads = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const int value = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--threads"))
      g_threads = value;
    else if (!std::strcmp(argv[i], "--rounds"))
      g_rounds = value;
    else if (!std::strcmp(argv[i], "--heads"))
      heads = value;
    else if (!std::strcmp(argv[i], "--kv-heads"))
      kv_heads = value;
    else if (!std::strcmp(argv[i], "--window"))
      g_window = value;
    else if (!std::strcmp(argv[i], "--softcap"))
      g_softcap = value;
  }
  Context ctx({.num_threads = g_threads});
  std::printf("tier %s, %d threads\n", name_of(ctx.isa()), g_threads);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t d : {64, 128})
      for (const int64_t t : {256, 1024, 2048}) bench(ctx, dtype, t, heads, kv_heads, d);
}
