// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's functions, one per entry of the Backend table; each lives in <op>_cuda.cu. No device code here.
#pragma once
#include "../backend.h"
#include "../context.h"
#include "../tensor.h"

namespace bantam::cuda {

void rms_norm(Context& ctx, const RmsNormArgs& args);
void rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args);
void product(Context& ctx, const ProductArgs& args);
void attention(Context& ctx, const AttentionArgs& args);
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);
void copy(Context& ctx, const CopyArgs& args);

/// y (=|+=) x with conversion between f32 and bf16: what copy() does, for use by other ops.
void convert(const ConstTensorView& x, const TensorView& y, GradMode mode);
/// Throws Error(device) unless t is f32 or bf16.
void require_float(DType t, const char* op, const char* what);

}  // namespace bantam::cuda
