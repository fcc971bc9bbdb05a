// SPDX-License-Identifier: Apache-2.0
// labels and weights are host memory, as the step constants of the executor are: the rows are sorted here. All else is
// device memory: hidden, head, loss, lse, dhidden, scratch.
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "cross_entropy.h"
#include "cross_entropy_chunk.h"
#include "cuda/cuda_ops.h"
#include "cuda/operand.h"
#include "cuda/staging.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 128;

struct LabelledRow {
  int64_t row;  // of hidden
  int32_t label;
  float weight;
};

// y = factor * x for one row by one block; the first `quads` fours are aligned in both.
template <class X, class Y>
__device__ __forceinline__ void scale_row(const X* __restrict__ x, float factor, Y* __restrict__ y, int64_t cols,
                                          int64_t quads) {
  for (int64_t q = threadIdx.x; q < quads; q += kThreads) {
    float v[4];
    load4(x + 4 * q, v);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] *= factor;
    store4(y + 4 * q, v);
  }
  for (int64_t i = 4 * quads + threadIdx.x; i < cols; i += kThreads) store(y + i, factor * load(x + i));
}

// y[i] = x[rows[i].row], rounded to Y. One block per row.
template <class X, class Y>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const X* __restrict__ x, int64_t x_stride, const LabelledRow* __restrict__ rows,
                       Y* __restrict__ y, int64_t cols, int64_t quads) {
  scale_row(x + rows[blockIdx.x].row * x_stride, 1.0f, y + blockIdx.x * cols, cols, quads);
}

// y[rows[i].row] = rows[i].weight * x[i]. One block per row.
__global__ void __launch_bounds__(kThreads)
    scatter_weighted_kernel(const float* __restrict__ x, const LabelledRow* __restrict__ rows, float* __restrict__ y,
                            int64_t y_stride, int64_t cols, int64_t quads) {
  const LabelledRow r = rows[blockIdx.x];
  scale_row(x + blockIdx.x * cols, r.weight, y + r.row * y_stride, cols, quads);
}

// The outputs of rows that are not trained. One block per row.
__global__ void __launch_bounds__(kThreads)
    clear_rows_kernel(const LabelledRow* __restrict__ rows, float* __restrict__ loss, float* __restrict__ lse,
                      float* __restrict__ dhidden, int64_t stride, int64_t cols) {
  const int64_t row = rows[blockIdx.x].row;
  if (threadIdx.x == 0) {
    loss[row] = 0.0f;
    if (lse) lse[row] = 0.0f;
  }
  if (!dhidden) return;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) dhidden[row * stride + i] = 0.0f;
}

// Elements [i, i + 4) of a row of logits, whose beginning is aligned; -inf past its end. Returns how many there are.
__device__ __forceinline__ int load_logits(const float* row, int64_t i, int64_t vocab, float (&v)[4]) {
  if (i + 4 <= vocab) {
    load4(row + i, v);
    return 4;
  }
  CU_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = i + j < vocab ? row[i + j] : -INFINITY;
  return i < vocab ? static_cast<int>(vocab - i) : 0;
}

// Loss and lse of a row from its logits, which become softmax - onehot in the type of the next product: `d` is null, or
// the memory of the logits. One block per row, one read for maximum and sum together, one for the rest.
template <int Threads, class D>
__global__ void __launch_bounds__(Threads)
    softmax_loss_kernel(const float* logits, int64_t stride, const LabelledRow* __restrict__ rows,
                        float* __restrict__ loss, float* __restrict__ lse, D* d, int64_t d_stride, int64_t vocab) {
  CU_SHARED(float, shared, [32]);
  const LabelledRow r = rows[blockIdx.x];
  const float* x = logits + blockIdx.x * stride;
  const float target = threadIdx.x == 0 ? x[r.label] : 0.0f;  // before d overwrites it
  float v[4], sum[4] = {}, max = -FLT_MAX;                    // finite, so that no -inf meets another
  for (int64_t i = 4 * static_cast<int64_t>(threadIdx.x); i < vocab; i += 4 * Threads) {
    load_logits(x, i, vocab, v);
    const float top = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
    if (top > max) {
      const float down = expf(max - top);
      max = top;
      CU_UNROLL
      for (int j = 0; j < 4; ++j) sum[j] *= down;
    }
    CU_UNROLL
    for (int j = 0; j < 4; ++j) sum[j] += expf(v[j] - max);
  }
  const float row_max = block_max(max, shared);
  const float row_sum = block_sum(((sum[0] + sum[1]) + (sum[2] + sum[3])) * expf(max - row_max), shared);
  if (threadIdx.x == 0) {
    const float log_sum = logf(row_sum);
    loss[r.row] = log_sum + (row_max - target);  // in this order a small loss of large logits keeps its digits
    if (lse) lse[r.row] = row_max + log_sum;
  }
  if (!d) return;

  const float inverse = 1.0f / row_sum;
  D* to = d + blockIdx.x * d_stride;
  for (int64_t begin = 0; begin < vocab; begin += 4 * Threads) {
    const int64_t i = begin + 4 * static_cast<int64_t>(threadIdx.x);
    const int n = load_logits(x, i, vocab, v);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = expf(v[j] - row_max) * inverse - (i + j == r.label ? 1.0f : 0.0f);
    // Narrower elements lie over logits that other threads read in this round or an earlier one, never in a later.
    if constexpr (sizeof(D) < sizeof(float)) __syncthreads();
    if (n == 4) {
      store4(to + i, v);
    } else {
      CU_UNROLL
      for (int j = 0; j < 4; ++j)
        if (j < n) store(to + i + j, v[j]);
    }
  }
}

// c = a b for any number of rows. The row contract: cuBLASLt may choose another algorithm, and so another order of a
// row's sums, for another m. So all pieces use the one that it chooses for kPieceRows rows.
constexpr int64_t kPieceRows = 512;
void multiply_rows(LtProduct p, int64_t rows, char* c, char* scratch) {
  const char* a = static_cast<const char*>(p.a.data);
  p.algorithm_m = kPieceRows;
  for (int64_t begin = 0; begin < rows; begin += kPieceRows) {
    p.m = std::min(kPieceRows, rows - begin);
    p.a.data = a + static_cast<size_t>(begin * p.a.stride) * size_of(p.operand_type);
    lt_matmul(p, 1.0f, 0.0f, c + static_cast<size_t>(begin * p.c_stride) * sizeof(float), scratch);
  }
}
}  // namespace

void cross_entropy(Context&, const CrossEntropyArgs& a) {
  require_float(a.hidden.dtype, "cross_entropy", "hidden");
  const int64_t cols = a.hidden.cols, vocab = a.head.rows;
  std::vector<LabelledRow> rows;
  rows.reserve(static_cast<size_t>(a.hidden.rows));
  int64_t trained = 0;
  for (const bool wanted : {true, false}) {
    for (int64_t t = 0; t < a.hidden.rows; ++t)
      if ((a.labels[t] != kIgnoreLabel) == wanted) rows.push_back({t, a.labels[t], a.weights ? a.weights[t] : 1.0f});
    if (wanted) trained = static_cast<int64_t>(rows.size());
  }

  // The two products and the types of their operands.
  const ConstTensorView logits_like(nullptr, DType::f32, 1, vocab);
  const DType type = operand_type({a.hidden, a.head, BLayout::nt}, a.math);
  const DType d_type = operand_type({logits_like, a.head, BLayout::nn}, a.math);
  static_assert(sizeof(LabelledRow) == kLossRowBytes);
  const size_t scratch_bytes = device_scratch(a);
  char* const lt_scratch = workspace(scratch_bytes);
  auto* const on_device = reinterpret_cast<LabelledRow*>(lt_scratch + scratch_bytes - rows.size() * kLossRowBytes);
  upload_async(on_device, rows.data(), rows.size() * sizeof(LabelledRow));
  auto* const dhidden = static_cast<float*>(a.dhidden.data);
  if (trained < a.hidden.rows)
    launch(clear_rows_kernel, a.hidden.rows - trained, kThreads, 0, on_device + trained, a.loss, a.lse, dhidden,
           a.dhidden.stride, cols);
  if (trained == 0) return;

  const int64_t most = CrossEntropyChunk::most_rows(a.scratch_bytes, trained, cols, vocab);
  const CrossEntropyChunk chunk(most, cols, vocab);
  char* const base = static_cast<char*>(a.scratch);
  auto* const logits = reinterpret_cast<float*>(base + chunk.logits);
  auto* const gradient = reinterpret_cast<float*>(base + chunk.gradient);

  LtProduct forward{};
  forward.n = vocab;
  forward.k = cols;
  forward.operand_type = type;
  forward.a = {base + chunk.hidden, cols, false};
  forward.b = operand(a.head, type, lt_scratch + kLtWorkspace);
  forward.b.transposed = true;
  forward.c_type = DType::f32;
  forward.c_stride = chunk.logits_stride;
  LtProduct backward{};
  backward.n = cols;
  backward.k = vocab;
  backward.operand_type = d_type;
  // bf16 rows lie at the beginning of the f32 rows.
  const int64_t d_stride = chunk.logits_stride * static_cast<int64_t>(sizeof(float) / size_of(d_type));
  backward.a = {logits, d_stride, false};
  if (a.dhidden) {
    backward.b = forward.b;
    if (d_type != type) backward.b = operand(a.head, d_type, lt_scratch + kLtWorkspace);
    backward.b.transposed = false;
  }
  backward.c_type = DType::f32;
  backward.c_stride = cols;

  const bool dense_quads = cols % 4 == 0;
  const int64_t gather_quads =
      dense_quads && rows_aligned4(a.hidden.data, a.hidden.stride, a.hidden.dtype) ? cols / 4 : 0;
  const int64_t scatter_quads = dense_quads && rows_aligned4(dhidden, a.dhidden.stride, DType::f32) ? cols / 4 : 0;
  for (int64_t begin = 0; begin < trained; begin += most) {
    const int64_t n = std::min(most, trained - begin);
    const LabelledRow* const some = on_device + begin;
    with_float_type(a.hidden.dtype, [&]<class X>() {
      with_float_type(type, [&]<class Y>() {
        launch(gather_rows_kernel<X, Y>, n, kThreads, 0, static_cast<const X*>(a.hidden.data), a.hidden.stride, some,
               reinterpret_cast<Y*>(base + chunk.hidden), cols, gather_quads);
      });
    });
    multiply_rows(forward, n, base + chunk.logits, lt_scratch);
    with_float_type(d_type, [&]<class D>() {
      const auto softmax = [&]<int Threads>() {
        launch(softmax_loss_kernel<Threads, D>, n, Threads, 0, logits, chunk.logits_stride, some, a.loss, a.lse,
               a.dhidden ? reinterpret_cast<D*>(logits) : nullptr, d_stride, vocab);
      };
      vocab <= 4096 ? softmax.template operator()<128>() : softmax.template operator()<512>();
    });
    if (!a.dhidden) continue;
    multiply_rows(backward, n, base + chunk.gradient, lt_scratch);
    launch(scatter_weighted_kernel, n, kThreads, 0, gradient, some, dhidden, a.dhidden.stride, cols, scatter_quads);
  }
}

}  // namespace bantam::cuda
