// SPDX-License-Identifier: Apache-2.0
// What ops take of a device beside the arena, from the shapes, types and formats of their arguments: a plan asks before
// anything is allocated, the device's ops when they run, so the two cannot differ. Nothing is read through a pointer;
// that one is null says only that an optional argument is absent. Compiled into bantam and into the backend's library.
#pragma once
#include <cstddef>
#include <cstdint>

#include "attention.h"
#include "backend.h"
#include "cross_entropy.h"
#include "grad_norm.h"
#include "product.h"
#include "rms_norm.h"

namespace bantam {

struct EmbeddingArgs;
struct RopeArgs;
struct GatedActArgs;
struct GatedActBackwardArgs;
struct DropoutArgs;
struct CopyArgs;

/// Bytes that the matrix library may use in one product.
inline constexpr size_t kLtWorkspace = size_t{4} << 20;
/// One row of the loss: its number, label and weight.
inline constexpr size_t kLossRowBytes = 16;
/// What a copy in the memory of upload_async begins at a multiple of.
inline constexpr size_t kStagingAlign = 64;
/// Rows of one slice of rms_norm's dweight; elements of one slice of grad_norm.
inline constexpr int64_t kNormSlice = 64, kGradNormSlice = 65536;

/// The type that both operands of a term take. Math::bf16: bf16. Math::f32: f32, unless both are bf16, where the
/// products of bf16 numbers are exact in f32 anyway.
DType operand_type(const ProductTerm& t, Math math);
/// True when w is stored as a matrix of t.
bool is_plain(const WeightView& w, DType t);
/// A dense matrix, as a multiple of 256 bytes.
size_t dense_bytes(int64_t rows, int64_t cols, DType t);
/// A weight as products of `math` take it once it is decoded, which is not in the workspace (Backend::prefetch_weight);
/// 0 unless it is nf4.
size_t decoded_bytes(const WeightView& w, Math math);

/// Pinned host memory of Backend::upload_async for copies of up to `largest` bytes: two halves of two such copies each,
/// so that the host may be a few copies ahead of the device.
size_t staging_bytes(size_t largest);
/// Bytes that an op sends by upload_async, at most at once; only the loss does.
size_t device_upload(const CrossEntropyArgs& args);
template <class Args>
size_t device_upload(const Args&) {
  return 0;
}

/// True when c itself is the accumulator of the product; else an f32 sum in the workspace is.
bool sums_in_c(const ProductArgs& args);
/// The type of the accumulator, which is also that of a bias that is added to it.
DType sum_type(const ProductArgs& args);
/// The left operand of the first term of products in a row, where two terms or more read it in the same type, and that
/// is not its own: it is converted once. Else null.
ConstTensorView common_operand(const ProductsArgs& args);
/// True when the term reads the common operand in the type that it is converted to.
bool takes_common(const ProductTerm& t, Math math, const ProductsArgs& args);

/// How products in a row cut their workspace, in this order.
struct ProductScratch {
  size_t library = kLtWorkspace;
  size_t common = 0;    ///< the common operand
  size_t a = 0, b = 0;  ///< the largest other left operand, and right operand, that must change type
  size_t bias = 0;      ///< the longest bias: one that must change type, or lies where the library cannot take it
  size_t sum = 0;       ///< the largest f32 sum
  size_t bytes() const { return library + common + a + b + bias + sum; }
};
ProductScratch product_scratch(const ProductsArgs& args);

/// Bytes of workspace.
size_t device_scratch(const ProductArgs& args);
size_t device_scratch(const ProductsArgs& args);
size_t device_scratch(const CrossEntropyArgs& args);
size_t device_scratch(const AttentionShape& shape);  ///< of attention and of its backward, by the backend's own kernels
size_t device_scratch(const AttentionArgs& args, const AttentionLibrary& library = {});
size_t device_scratch(const AttentionBackwardArgs& args, const AttentionLibrary& library = {});
size_t device_scratch(const RmsNormBackwardArgs& args);
size_t device_scratch(const GradNormArgs& args);
// These take none.
inline size_t device_scratch(const EmbeddingArgs&) {
  return 0;
}
inline size_t device_scratch(const RmsNormArgs&) {
  return 0;
}
inline size_t device_scratch(const RopeArgs&) {
  return 0;
}
inline size_t device_scratch(const GatedActArgs&) {
  return 0;
}
inline size_t device_scratch(const GatedActBackwardArgs&) {
  return 0;
}
inline size_t device_scratch(const DropoutArgs&) {
  return 0;
}
inline size_t device_scratch(const CopyArgs&) {
  return 0;
}

}  // namespace bantam
