// SPDX-License-Identifier: Apache-2.0
#include "device_scratch.h"

#include <algorithm>

#include "cudnn_shapes.h"

namespace bantam {

DType operand_type(const ProductTerm& t, Math math) {
  const bool both_bf16 = t.a.dtype == DType::bf16 && t.b.format == WeightFormat::bf16;
  return math == Math::bf16 || both_bf16 ? DType::bf16 : DType::f32;
}

bool is_plain(const WeightView& w, DType t) {
  return w.format == (t == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32);
}

size_t dense_bytes(int64_t rows, int64_t cols, DType t) {
  return (static_cast<size_t>(rows * cols) * size_of(t) + 255) / 256 * 256;
}

size_t decoded_bytes(const WeightView& w, Math math) {
  if (w.format != WeightFormat::nf4) return 0;
  return dense_bytes(w.rows, w.cols, math == Math::bf16 ? DType::bf16 : DType::f32);
}

// c is the accumulator in f32, and in bf16 where all operands are bf16 and nothing but a bias is added at the end: a
// second term then costs a rounding of the first, and no pass over an f32 sum that is twice as large as c.
bool sums_in_c(const ProductArgs& args) {
  if (args.c.dtype == DType::f32) return true;
  if (args.residual && (args.residual.dtype != args.c.dtype || args.mode == GradMode::add)) return false;
  for (int i = 0; i < args.num_terms; ++i)
    if (operand_type(args.terms[i], args.math) != DType::bf16) return false;
  return true;
}

DType sum_type(const ProductArgs& args) {
  return sums_in_c(args) ? args.c.dtype : DType::f32;
}

namespace {
bool same_view(const ConstTensorView& a, const ConstTensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols && a.stride == b.stride;
}
// The type that the first term of all takes.
DType common_type(const ProductsArgs& args) {
  return operand_type(args.list[0].terms[0], args.list[0].math);
}
}  // namespace

bool takes_common(const ProductTerm& t, Math math, const ProductsArgs& args) {
  return same_view(t.a, args.list[0].terms[0].a) && operand_type(t, math) == common_type(args);
}

ConstTensorView common_operand(const ProductsArgs& args) {
  if (args.list.empty()) return {};
  const ConstTensorView& a = args.list[0].terms[0].a;
  int readers = 0;
  for (const ProductArgs& p : args.list)
    for (int i = 0; i < p.num_terms; ++i) readers += takes_common(p.terms[i], p.math, args);
  return readers > 1 && a.dtype != common_type(args) ? a : ConstTensorView();
}

ProductScratch product_scratch(const ProductsArgs& args) {
  ProductScratch s;
  const ConstTensorView common = common_operand(args);
  if (common) s.common = dense_bytes(common.rows, common.cols, common_type(args));
  for (const ProductArgs& p : args.list) {
    for (int i = 0; i < p.num_terms; ++i) {
      const ProductTerm& t = p.terms[i];
      const DType type = operand_type(t, p.math);
      if (t.a.dtype != type && !(common && takes_common(t, p.math, args)))
        s.a = std::max(s.a, dense_bytes(t.a.rows, t.a.cols, type));
      if (t.b.format != WeightFormat::nf4 && !is_plain(t.b, type))
        s.b = std::max(s.b, dense_bytes(t.b.rows, t.b.cols, type));
    }
    if (p.bias) s.bias = std::max(s.bias, dense_bytes(1, p.c.cols, sum_type(p)));
    if (!sums_in_c(p)) s.sum = std::max(s.sum, dense_bytes(p.c.rows, p.c.cols, DType::f32));
  }
  return s;
}

size_t device_scratch(const ProductArgs& args) {
  return device_scratch(ProductsArgs{{&args, 1}});
}
size_t device_scratch(const ProductsArgs& args) {
  return product_scratch(args).bytes();
}

// The two products take the head in types that differ for a bf16 head under Math::f32 only, and then the first takes it
// as it is: room for one converted head is enough.
size_t device_scratch(const CrossEntropyArgs& a) {
  const ConstTensorView logits(nullptr, DType::f32, 1, a.head.rows);
  size_t converted = 0;
  const auto add = [&](const ConstTensorView& left, BLayout layout) {
    const DType t = operand_type({left, a.head, layout}, a.math);
    if (a.head.format != WeightFormat::nf4 && !is_plain(a.head, t))
      converted = std::max(converted, dense_bytes(a.head.rows, a.head.cols, t));
  };
  add(a.hidden, BLayout::nt);
  if (a.dhidden) add(logits, BLayout::nn);
  return kLtWorkspace + converted + static_cast<size_t>(a.hidden.rows) * kLossRowBytes;
}

size_t staging_bytes(size_t largest) {
  return 4 * ((largest + kStagingAlign - 1) / kStagingAlign * kStagingAlign);
}

size_t device_upload(const CrossEntropyArgs& a) {
  return static_cast<size_t>(a.hidden.rows) * kLossRowBytes;
}

// cu_q, cu_k and the first block of each sequence.
size_t device_scratch(const AttentionShape& s) {
  return 3 * (static_cast<size_t>(s.num_seqs) + 1) * sizeof(int32_t);
}
// What cuDNN takes at run time depends on the sequences too: there is room for either.
namespace {
template <class Args>
size_t attention_scratch(const Args& args, const AttentionLibrary& library) {
  const size_t own = device_scratch(args.shape);
  return cudnn_takes(args, library)
             ? std::max(own, kCudnnTable + cudnn_converted(args) + cudnn_workspace(args, library))
             : own;
}
}  // namespace
size_t device_scratch(const AttentionArgs& args, const AttentionLibrary& library) {
  return attention_scratch(args, library);
}
size_t device_scratch(const AttentionBackwardArgs& args, const AttentionLibrary& library) {
  return attention_scratch(args, library);
}

size_t device_scratch(const RmsNormBackwardArgs& args) {
  if (!args.dweight) return 0;
  const int64_t slices = (args.x.rows + kNormSlice - 1) / kNormSlice;
  return static_cast<size_t>(slices * args.x.cols) * sizeof(float);
}

size_t device_scratch(const GradNormArgs& args) {
  return static_cast<size_t>((args.n + kGradNormSlice - 1) / kGradNormSlice) * sizeof(double);
}

}  // namespace bantam
