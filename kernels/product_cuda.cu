// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <utility>

#include "cuda/cuda_ops.h"
#include "cuda/decoded_weights.h"
#include "cuda/operand.h"
#include "cuda/quads.cuh"
#include "error.h"

namespace bantam::cuda {

namespace {
// c = round(sum + residual [+ c]): one quad per thread. sum may be c, and residual may be c: a thread writes only what
// it alone reads.
template <class C, class R>
__global__ void __launch_bounds__(kQuadThreads)
    product_finish_kernel(const float* sum, int64_t sum_stride, const R* residual, int64_t residual_stride, C* c,
                          int64_t c_stride, int cols, int quads, int blocks, bool add) {
  const RowQuad at = row_quad(blocks);
  const int i = 4 * at.quad;
  if (i >= cols) return;
  float v[4], w[4];
  const int n = load_some(sum + at.row * sum_stride, i, cols, quads, v);
  if (residual) {
    load_some(residual + at.row * residual_stride, i, cols, quads, w);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] += w[j];
  }
  put_some(c + at.row * c_stride, i, n, quads, add, v);
}
}  // namespace

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
  return {decoded_weight(w, t), w.cols, false};
}

namespace {
// The workspace of products in a row.
struct Pieces {
  char *library, *common, *a, *b, *bias, *sum;
  explicit Pieces(const ProductScratch& s) {
    char* at = workspace(s.bytes());
    const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
    library = take(s.library);
    common = take(s.common);
    a = take(s.a);
    b = take(s.b);
    bias = take(s.bias);
    sum = take(s.sum);
  }
};

// A bias of type t where the library takes it.
const void* bias_operand(const float* bias, int64_t n, DType t, char* scratch) {
  if (t == DType::f32 && reinterpret_cast<uintptr_t>(bias) % kBiasAlignment == 0) return bias;
  convert(ConstTensorView(bias, DType::f32, 1, n), TensorView(scratch, t, 1, n), GradMode::write);
  return scratch;
}

void check(const ProductArgs& args) {
  require_float(args.c.dtype, "product", "c");
  if (args.residual) require_float(args.residual.dtype, "product", "residual");
  for (int i = 0; i < args.num_terms; ++i) {
    const ProductTerm& t = args.terms[i];
    require_float(t.a.dtype, "product", "a");
    if (t.a.rows == 0 || t.a.cols == 0)
      throw Error(ErrorCode::device, "CUDA: product: the reduction has length 0", "use `device: cpu`");
  }
}

// One of the products; `left` gives the left operand of a term.
template <class Left>
void run(const ProductArgs& args, const Pieces& pieces, Left&& left) {
  const TensorView& c = args.c;
  const bool in_place = sums_in_c(args);
  // The residual is where the first product starts from, be it c or not, so that where it lies changes no bit.
  const bool from_residual =
      in_place && args.residual && args.mode == GradMode::write && args.residual.dtype == c.dtype;
  // To add to c what is c already is to double it.
  const bool doubled = in_place && args.residual.data == c.data && args.mode == GradMode::add;
  auto* sum = reinterpret_cast<float*>(pieces.sum);

  // The last term first: LoRA's, so that the large product comes last where c is bf16.
  for (int i = args.num_terms - 1; i >= 0; --i) {
    const ProductTerm& t = args.terms[i];
    LtProduct p{};
    p.m = c.rows;
    p.n = c.cols;
    p.k = t.a_transposed ? t.a.rows : t.a.cols;
    p.operand_type = operand_type(t, args.math);
    p.a = left(t, p.operand_type);
    p.a.transposed = t.a_transposed;
    p.b = operand(t.b, p.operand_type, pieces.b);
    p.b.transposed = t.layout == BLayout::nt;
    p.c_type = sum_type(args);
    p.c_stride = in_place ? c.stride : c.cols;
    const bool first = i == args.num_terms - 1;
    if (first && from_residual) {
      p.start = args.residual.data;
      p.start_stride = args.residual.stride;
    }
    if (i == 0 && args.bias) p.bias = bias_operand(args.bias, c.cols, p.c_type, pieces.bias);
    float beta = !first || from_residual ? 1.0f : 0.0f;
    if (first && in_place && args.mode == GradMode::add) beta = doubled ? 2.0f : 1.0f;
    lt_matmul(p, args.alpha, beta, in_place ? c.data : sum, pieces.library);
  }

  const ConstTensorView residual = from_residual || doubled ? ConstTensorView() : args.residual;
  if (in_place && !residual) return;
  const ConstTensorView from = in_place ? ConstTensorView(c) : ConstTensorView(sum, DType::f32, c.rows, c.cols);
  const bool vector = rows_aligned4(from) && rows_aligned4(c) && (!residual || rows_aligned4(residual));
  const int cols = columns_of(c, "product"), blocks = blocks_per_row((cols + 3) / 4);
  with_float_type(c.dtype, [&]<class C>() {
    with_float_type(residual.dtype, [&]<class R>() {
      launch(product_finish_kernel<C, R>, c.rows * blocks, kQuadThreads, 0, static_cast<const float*>(from.data),
             from.stride, static_cast<const R*>(residual.data), residual.stride, static_cast<C*>(c.data), c.stride,
             cols, vector ? cols / 4 : 0, blocks, !in_place && args.mode == GradMode::add);
    });
  });
}
}  // namespace

void products(Context&, const ProductsArgs& args) {
  const auto is_empty = [](const ProductArgs& p) { return p.c.rows == 0 || p.c.cols == 0; };
  for (const ProductArgs& p : args.list)
    if (!is_empty(p)) check(p);
  const Pieces pieces(product_scratch(args));
  const ConstTensorView common = common_operand(args);
  LtOperand converted{};  // the common operand, once it is
  for (const ProductArgs& p : args.list) {
    if (is_empty(p)) continue;
    run(p, pieces, [&](const ProductTerm& t, DType type) {
      if (!common || !takes_common(t, p.math, args)) return operand(t.a, type, pieces.a);
      if (!converted.data) converted = operand(t.a, type, pieces.common);
      return converted;
    });
  }
}

void product(Context& ctx, const ProductArgs& args) {
  cuda::products(ctx, {{&args, 1}});
}

}  // namespace bantam::cuda
