// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's table. BANTAM_BACKEND_NAME comes from the build: `cuda`, or `cuda_on_cpu` for the emulated one.
#include "cuda_ops.h"
#include "device.h"
#include "staging.h"

extern "C" __attribute__((visibility("default"))) const bantam::Backend* bantam_backend(int abi) {
  using namespace bantam;
  if (abi != Backend::kAbi) return nullptr;
  cuda::require_device();
  static const Backend backend = {
      .name = BANTAM_BACKEND_NAME,
      .host_memory = false,
      .allocate = cuda::allocate,
      .release = cuda::release,
      .upload = cuda::upload,
      .upload_async = cuda::upload_async,
      .download = cuda::download,
      .fill = cuda::fill,
      .embedding = cuda::embedding,
      .rms_norm = cuda::rms_norm,
      .rms_norm_backward = cuda::rms_norm_backward,
      .rope = cuda::rope,
      .product = cuda::product,
      .gated_act = cuda::gated_act,
      .gated_act_backward = cuda::gated_act_backward,
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
      .cross_entropy = cuda::cross_entropy,
      .dropout = cuda::dropout,
      .copy = cuda::copy,
      .adamw = cuda::adamw,
      .grad_norm = cuda::grad_norm,
      .quantize_nf4 = cuda::quantize_nf4,
  };
  return &backend;
}
