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

ProductScratch product_scratch(const ProductArgs& args) {
  const TensorView& c = args.c;
  // c itself is the accumulator in f32, and in bf16 where all operands are bf16 and nothing is added at the end: a
  // second term then costs a rounding of the first, and no pass over an f32 sum that is twice as large as c.
  ProductScratch s;
  bool bf16_terms = true;
  for (int i = 0; i < args.num_terms; ++i) bf16_terms &= operand_type(args.terms[i], args.math) == DType::bf16;
  const bool residual_at_end = args.residual && (args.residual.dtype != c.dtype || args.mode == GradMode::add);
  s.in_place = c.dtype == DType::f32 || (bf16_terms && !args.bias && !residual_at_end);
  for (int i = 0; i < args.num_terms; ++i) {
    const ProductTerm& t = args.terms[i];
    const DType type = operand_type(t, args.math);
    if (t.a.dtype != type) s.a = std::max(s.a, dense_bytes(t.a.rows, t.a.cols, type));
    if (t.b.format != WeightFormat::nf4 && !is_plain(t.b, type))
      s.b = std::max(s.b, dense_bytes(t.b.rows, t.b.cols, type));
  }
  if (!s.in_place) s.sum = dense_bytes(c.rows, c.cols, DType::f32);
  return s;
}

size_t device_scratch(const ProductArgs& args) {
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
