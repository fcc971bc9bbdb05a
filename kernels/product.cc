// SPDX-License-Identifier: Apache-2.0
// The product's entry: checks, then the backend's function.
#include "product.h"

#include "backend.h"

namespace bantam {

namespace {

[[noreturn]] void fail(const std::string& what, const char* op = "product") {
  throw Error(ErrorCode::internal, str(op, ": ", what));
}

bool is_float(DType t) {
  return t == DType::f32 || t == DType::bf16;
}

void check_matrix(const char* name, const ConstTensorView& t) {
  if (!t.data) fail(str(name, " is null"));
  if (!is_float(t.dtype)) fail(str(name, " has dtype ", name_of(t.dtype), ", expected f32 or bf16"));
  if (t.rows < 0 || t.cols < 0) fail(str(name, " has shape [", t.rows, ", ", t.cols, "]"));
  if (t.stride < t.cols) fail(str(name, " has row stride ", t.stride, ", expected at least its ", t.cols, " columns"));
}

void check_shape(const char* name, int64_t rows, int64_t cols, int64_t want_rows, int64_t want_cols) {
  if (rows != want_rows || cols != want_cols)
    fail(str(name, " has shape [", rows, ", ", cols, "], expected [", want_rows, ", ", want_cols, "]"));
}

void check_weight(const char* name, const WeightView& w) {
  if (!w.data) fail(str(name, " is null"));
  if (w.rows < 0 || w.cols < 0) fail(str(name, " has shape [", w.rows, ", ", w.cols, "]"));
  if (w.format != WeightFormat::nf4) {
    if (w.stride < w.cols)
      fail(str(name, " has row stride ", w.stride, ", expected at least its ", w.cols, " columns"));
    return;
  }
  if (w.stride != w.cols) fail(str(name, " is nf4 with row stride ", w.stride, ", expected its ", w.cols, " columns"));
  if (!w.absmax && !(w.absmax_q && w.nested_absmax && w.nested_code))
    fail(str(name, " is nf4 without scales, expected absmax, or absmax_q, nested_absmax and nested_code"));
}

}  // namespace

namespace {

void check_product(const ProductArgs& args) {
  if (args.num_terms != 1 && args.num_terms != 2) fail(str("num_terms is ", args.num_terms, ", expected 1 or 2"));
  check_matrix("c", args.c);
  const int64_t m = args.c.rows, n = args.c.cols;
  for (int t = 0; t < args.num_terms; ++t) {
    const ProductTerm& term = args.terms[t];
    const std::string a = str("terms[", t, "].a"), b = str("terms[", t, "].b");
    check_matrix(a.c_str(), term.a);
    check_weight(b.c_str(), term.b);
    const bool nt = term.layout == BLayout::nt;
    const int64_t k = nt ? term.b.cols : term.b.rows;
    check_shape(b.c_str(), term.b.rows, term.b.cols, nt ? n : k, nt ? k : n);
    check_shape(a.c_str(), term.a.rows, term.a.cols, term.a_transposed ? k : m, term.a_transposed ? m : k);
  }
  if (args.residual) {
    check_matrix("residual", args.residual);
    check_shape("residual", args.residual.rows, args.residual.cols, m, n);
  }
}

}  // namespace

void product(Context& ctx, const ProductArgs& args) {
  const auto f = detail::require(ctx.backend().product, ctx, "product");
  check_product(args);
  if (args.c.rows > 0 && args.c.cols > 0) f(ctx, args);
}

void products(Context& ctx, const ProductsArgs& args) {
  const auto f = detail::require(ctx.backend().products, ctx, "products");
  if (args.list.empty()) return;
  for (const ProductArgs& p : args.list) check_product(p);
  for (size_t i = 0; i < args.list.size(); ++i)
    if (args.list[i].c.data == args.list[0].terms[0].a.data)
      fail(str("the c of number ", i, " of several is the first one's terms[0].a, expected another matrix"),
           "products");
  f(ctx, args);
}

}  // namespace bantam
