// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

// f32 sums run over this many logits, f64 from there on: lse is good to 1e-6 for any vocabulary.
constexpr int64_t kSumSlice = 512;

// x[0 .. v) becomes exp(x - max); returns the sum, and the max through `max`.
double exp_row(float* x, int64_t v, float* max) {
  *max = max_of(x, v);
  const V8 m = hn::Set(D8(), *max);
  double sum = 0;
  for (int64_t begin = 0; begin < v; begin += kSumSlice) {
    float* at = x + begin;
    sum += static_cast<double>(sum_vectors(std::min(kSumSlice, v - begin), [&](int64_t i, auto n, V8 acc) HWY_ATTR {
      store(vec_exp(hn::Sub(load(at + i, n), m)), at + i, n);
      return hn::Add(acc, load(at + i, n));  // reads zeros past the end
    }));
  }
  return sum;
}

void scale_row(const float* x, float factor, int64_t n, float* y) {
  const V8 f = hn::Set(D8(), factor);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(x + i, part), f), y + i, part); });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"
#include "cross_entropy_chunk.h"
#include "product.h"

namespace bantam {

HWY_EXPORT(exp_row);
HWY_EXPORT(scale_row);

namespace {

// Loss and lse of row t from its logits, which become softmax - onehot when that is wanted.
void finish_row(const CrossEntropyArgs& a, int64_t t, float* logits) {
  const int64_t vocab = a.head.rows;
  const int32_t label = a.labels[t];
  const double target = logits[label];
  float max = 0;
  const double sum = HWY_DYNAMIC_DISPATCH(exp_row)(logits, vocab, &max);
  const double lse = static_cast<double>(max) + std::log(sum);
  a.loss[t] = static_cast<float>(lse - target);
  if (a.lse) a.lse[t] = static_cast<float>(lse);
  if (!a.dhidden) return;
  HWY_DYNAMIC_DISPATCH(scale_row)(logits, static_cast<float>(1.0 / sum), vocab, logits);
  logits[label] -= 1.0f;
}

// Takes trained rows from row *next on into `index`, at most `most`; rows passed over get their zeros.
int64_t collect_rows(const CrossEntropyArgs& a, int64_t* next, int64_t most, int64_t* index) {
  int64_t n = 0;
  for (; *next < a.hidden.rows && n < most; ++*next) {
    const int64_t t = *next;
    if (a.labels[t] != kIgnoreLabel) {
      index[n++] = t;
      continue;
    }
    a.loss[t] = 0;
    if (a.lse) a.lse[t] = 0;
    if (a.dhidden) std::fill_n(a.dhidden.row<float>(t), a.dhidden.cols, 0.0f);
  }
  return n;
}

}  // namespace

void cpu::cross_entropy(Context& ctx, const CrossEntropyArgs& a) {
  const int64_t cols = a.hidden.cols, vocab = a.head.rows;
  const int64_t most = cross_entropy_chunk_rows(a.scratch_bytes, a.hidden.rows, cols, vocab);
  const CrossEntropyChunk chunk(most, cols, vocab);
  char* const base = static_cast<char*>(a.scratch);
  int64_t* const index = reinterpret_cast<int64_t*>(base + chunk.index);
  const size_t row_bytes = static_cast<size_t>(cols) * size_of(a.hidden.dtype);

  int64_t next = 0;
  while (const int64_t n = collect_rows(a, &next, most, index)) {
    ConstTensorView hidden = a.hidden.row_range(index[0], n);
    if (index[n - 1] - index[0] != n - 1) {
      char* const gathered = base + chunk.hidden;
      parallel_for(ctx, n, rows_per_piece(cols), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(gathered + static_cast<size_t>(i) * row_bytes, a.hidden.row_range(index[i], 1).data, row_bytes);
      });
      hidden = {gathered, a.hidden.dtype, n, cols};
    }
    const TensorView logits(base + chunk.logits, DType::f32, n, vocab, chunk.logits_stride);
    ProductArgs forward;
    forward.terms[0] = {hidden, a.head, BLayout::nt};
    forward.c = logits;
    forward.math = a.math;
    bantam::product(ctx, forward);
    parallel_for(ctx, n, 1, [&](int64_t i, int64_t, int) { finish_row(a, index[i], logits.row<float>(i)); });
    if (!a.dhidden) continue;

    const TensorView gradient(base + chunk.gradient, DType::f32, n, cols);
    ProductArgs backward;
    backward.terms[0] = {logits, a.head, BLayout::nn};
    backward.c = gradient;
    backward.math = a.math;
    bantam::product(ctx, backward);
    parallel_for(ctx, n, rows_per_piece(cols), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const float weight = a.weights ? a.weights[index[i]] : 1.0f;
        HWY_DYNAMIC_DISPATCH(scale_row)(gradient.row<float>(i), weight, cols, a.dhidden.row<float>(index[i]));
      }
    });
  }
}

}  // namespace bantam
#endif
