// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <algorithm>

#include "cuda/cuda_ops.h"
#include "cuda/nf4.cuh"
#include "cuda/operand.h"
#include "error.h"
#include "product.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 256, kValuesPerThread = 16;

// out[i] = code value * block scale, rounded to T: one thread decodes 8 bytes, 16 values of one block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    nf4_dequantize_kernel(const uint8_t* __restrict__ codes, const float* __restrict__ absmax,
                          const uint8_t* __restrict__ absmax_q, const float* __restrict__ nested_absmax,
                          const float* __restrict__ nested_code, float nested_offset, T* __restrict__ out, int64_t n,
                          bool aligned) {
  CU_SHARED(float, table, [16]);
  load_nf4_table(table);
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kValuesPerThread;
  if (i >= n) return;
  const float scale = nf4_scale(i / WeightView::kBlock, absmax, absmax_q, nested_absmax, nested_code, nested_offset);
  if (aligned && i + kValuesPerThread <= n) {
    const uint2 packed = __ldg(reinterpret_cast<const uint2*>(codes + i / 2));
    const uint32_t words[2] = {packed.x, packed.y};
    CU_UNROLL
    for (int quad = 0; quad < 4; ++quad) {  // two bytes are four values, the high nibble first
      const uint32_t two = words[quad / 2] >> (16 * (quad % 2));
      const float v[4] = {table[two >> 4 & 15] * scale, table[two & 15] * scale, table[two >> 12 & 15] * scale,
                          table[two >> 8 & 15] * scale};
      store4(out + i + 4 * quad, v);
    }
  } else {
    for (int64_t j = i; j < n && j < i + kValuesPerThread; ++j) {
      const uint32_t byte = codes[j / 2];
      store(out + j, table[j % 2 ? byte & 15 : byte >> 4] * scale);
    }
  }
}

// c = round(sum + bias + residual [+ c]): one thread per element. sum may be c, and residual may be c.
template <class C, class R>
__global__ void __launch_bounds__(kThreads)
    product_finish_kernel(const float* sum, int64_t sum_stride, const float* __restrict__ bias, const R* residual,
                          int64_t residual_stride, C* c, int64_t c_stride, int64_t rows, int64_t cols, bool add) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * cols) return;
  const int64_t row = i / cols, col = i % cols;
  C* to = c + row * c_stride + col;
  float v = sum[row * sum_stride + col];
  if (bias) v += bias[col];
  if (residual) v += load(residual + row * residual_stride + col);
  if (add) v += load(to);
  store(to, v);
}

size_t round_up(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}
}  // namespace

DType operand_type(const ProductTerm& t, Math math) {
  const bool both_bf16 = t.a.dtype == DType::bf16 && t.b.format == WeightFormat::bf16;
  return math == Math::bf16 || both_bf16 ? DType::bf16 : DType::f32;
}
bool is_plain(const WeightView& w, DType t) {
  return w.format == (t == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32);
}
size_t dense_bytes(int64_t rows, int64_t cols, DType t) {
  return round_up(static_cast<size_t>(rows * cols) * size_of(t));
}

LtOperand operand(const ConstTensorView& a, DType t, char* scratch) {
  if (a.dtype == t) return {a.data, a.stride, false};
  convert(a, TensorView(scratch, t, a.rows, a.cols), GradMode::write);
  return {scratch, a.cols, false};
}
LtOperand operand(const WeightView& w, DType t, char* scratch) {
  if (w.format != WeightFormat::nf4) {
    const DType have = w.format == WeightFormat::bf16 ? DType::bf16 : DType::f32;
    return operand(ConstTensorView(w.data, have, w.rows, w.cols, w.stride), t, scratch);
  }
  const int64_t n = w.rows * w.cols;
  const auto* codes = static_cast<const uint8_t*>(w.data);
  with_float_type(t, [&]<class T>() {
    launch(nf4_dequantize_kernel<T>, blocks_for(n, kThreads * kValuesPerThread), kThreads, 0, codes, w.absmax,
           w.absmax_q, w.nested_absmax, w.nested_code, w.nested_offset, reinterpret_cast<T*>(scratch), n,
           reinterpret_cast<uintptr_t>(codes) % 8 == 0);
  });
  return {scratch, w.cols, false};
}

void product(Context&, const ProductArgs& args) {
  const TensorView& c = args.c;
  require_float(c.dtype, "product", "c");
  if (args.residual) require_float(args.residual.dtype, "product", "residual");
  if (c.rows == 0 || c.cols == 0) return;

  // c itself is the accumulator where that rounds only once: always in f32; in bf16 for one term of bf16 operands with
  // no further summand but the old c.
  const bool residual_is_c = args.residual && args.residual.data == c.data && args.residual.stride == c.stride &&
                             args.residual.dtype == c.dtype;
  const bool residual_apart = args.residual && !residual_is_c;
  const bool one_bf16_term = args.num_terms == 1 && operand_type(args.terms[0], args.math) == DType::bf16;
  const bool in_place = c.dtype == DType::f32 || (one_bf16_term && !args.bias && !residual_apart);
  const float old = (args.mode == GradMode::add ? 1.0f : 0.0f) + (residual_is_c ? 1.0f : 0.0f);

  size_t a_bytes = 0, b_bytes = 0;
  for (int i = 0; i < args.num_terms; ++i) {
    const ProductTerm& t = args.terms[i];
    require_float(t.a.dtype, "product", "a");
    const DType type = operand_type(t, args.math);
    if (t.a.rows == 0 || t.a.cols == 0)
      throw Error(ErrorCode::device, "CUDA: product: the reduction has length 0", "use `device: cpu`");
    if (t.a.dtype != type) a_bytes = std::max(a_bytes, dense_bytes(t.a.rows, t.a.cols, type));
    if (!is_plain(t.b, type)) b_bytes = std::max(b_bytes, dense_bytes(t.b.rows, t.b.cols, type));
  }
  const size_t sum_bytes = in_place ? 0 : dense_bytes(c.rows, c.cols, DType::f32);
  char* lt_scratch = workspace(kLtWorkspace + a_bytes + b_bytes + sum_bytes);
  char* a_scratch = lt_scratch + kLtWorkspace;
  char* b_scratch = a_scratch + a_bytes;
  auto* sum = reinterpret_cast<float*>(b_scratch + b_bytes);

  for (int i = 0; i < args.num_terms; ++i) {
    const ProductTerm& t = args.terms[i];
    LtProduct p{};
    p.m = c.rows;
    p.n = c.cols;
    p.k = t.a_transposed ? t.a.rows : t.a.cols;
    p.operand_type = operand_type(t, args.math);
    p.a = operand(t.a, p.operand_type, a_scratch);
    p.a.transposed = t.a_transposed;
    p.b = operand(t.b, p.operand_type, b_scratch);
    p.b.transposed = t.layout == BLayout::nt;
    p.c_type = in_place ? c.dtype : DType::f32;
    p.c_stride = in_place ? c.stride : c.cols;
    const float beta = i > 0 ? 1.0f : in_place ? old : 0.0f;
    lt_matmul(p, args.alpha, beta, in_place ? c.data : sum, lt_scratch);
  }

  if (in_place && !args.bias && !residual_apart) return;
  const ConstTensorView residual = residual_apart || !in_place ? args.residual : ConstTensorView();
  with_float_type(c.dtype, [&]<class C>() {
    with_float_type(residual.dtype, [&]<class R>() {
      launch(product_finish_kernel<C, R>, blocks_for(c.rows * c.cols, kThreads), kThreads, 0,
             in_place ? static_cast<const float*>(c.data) : sum, in_place ? c.stride : c.cols, args.bias,
             static_cast<const R*>(residual.data), residual.stride, static_cast<C*>(c.data), c.stride, c.rows, c.cols,
             !in_place && args.mode == GradMode::add);
    });
  });
}

}  // namespace bantam::cuda
