// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's functions, one per entry of the Backend table; each lives in <op>_cuda.cu. No device code here.
#pragma once
#include <cstdint>
#include <vector>

#include "../backend.h"
#include "../context.h"
#include "../tensor.h"

namespace bantam::cuda {

void embedding(Context& ctx, const EmbeddingArgs& args);
void rms_norm(Context& ctx, const RmsNormArgs& args);
void rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args);
void rope(Context& ctx, const RopeArgs& args);
void product(Context& ctx, const ProductArgs& args);
void products(Context& ctx, const ProductsArgs& args);
void gated_act(Context& ctx, const GatedActArgs& args);
void gated_act_backward(Context& ctx, const GatedActBackwardArgs& args);
void attention(Context& ctx, const AttentionArgs& args);
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);
void cross_entropy(Context& ctx, const CrossEntropyArgs& args);
void dropout(Context& ctx, const DropoutArgs& args);
void copy(Context& ctx, const CopyArgs& args);
void adamw(Context& ctx, const AdamwArgs& args);
void grad_norm(Context& ctx, const GradNormArgs& args);
void quantize_nf4(Context& ctx, const QuantizeNf4Args& args);

/// Whether this library holds machine code, or PTX that the driver can translate, for the current device.
bool has_code();
/// Copies words to the device as kernel arguments, in order with the ops: nothing waits. In attention_cuda.cu.
void send_words(const std::vector<int32_t>& words, int32_t* device);
/// y (=|+=) x with conversion between f32 and bf16: what copy() does, for use by other ops.
void convert(const ConstTensorView& x, const TensorView& y, GradMode mode);
/// Throws Error(device) unless t is f32 or bf16.
void require_float(DType t, const char* op, const char* what);

}  // namespace bantam::cuda
