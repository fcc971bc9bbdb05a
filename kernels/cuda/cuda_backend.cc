// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's table. BANTAM_BACKEND_NAME comes from the build: `cuda`, or `cuda_on_cpu` for the emulated one.
#include "cuda_ops.h"
#include "cudnn_attention.h"
#include "decoded_weights.h"
#include "device.h"
#include "host_copies.h"
#include "pinned.h"
#include "staging.h"

extern "C" __attribute__((visibility("default"))) const bantam::Backend* bantam_backend(int abi) {
  using namespace bantam;
  if (abi != Backend::kAbi) return nullptr;
  cuda::require_device();
  static const Backend backend = {
      .name = BANTAM_BACKEND_NAME,
      .host_memory = false,
      .device_count = cuda::device_count,
      .device_info = cuda::device_info,
      .open = cuda::open,
      .synchronize = cuda::synchronize,
      .memory_use = cuda::memory_use,
      .time_mark = cuda::time_mark,
      .seconds_between = cuda::seconds_between,
      .range_begin = cuda::range_begin,
      .range_end = cuda::range_end,
      .allocate = cuda::allocate,
      .release = cuda::release,
      .upload = cuda::upload,
      .upload_async = cuda::upload_async,
      .download = cuda::download,
      .fill = cuda::fill,
      .allocate_pinned = cuda::allocate_pinned,
      .release_pinned = cuda::release_pinned,
      .upload_pinned = cuda::upload_pinned,
      .download_pinned = cuda::download_pinned,
      .mark = cuda::mark,
      .reached = cuda::reached,
      .wait_for = cuda::wait_for,
      .copy_out = cuda::copy_out,
      .copy_in = cuda::copy_in,
      .wait_copy = cuda::wait_copy,
      .attention_library = cuda::attention_library,
      .reserve_workspace = cuda::reserve_workspace,
      .workspace_high = cuda::workspace_high,
      .reserve_staging = cuda::reserve_staging,
      .staging_high = cuda::staging_high,
      .reserve_decoded_weights = cuda::reserve_decoded_weights,
      .prefetch_weight = cuda::prefetch_weight,
      .weights_decoded = cuda::weights_decoded,
      .embedding = cuda::embedding,
      .rms_norm = cuda::rms_norm,
      .rms_norm_backward = cuda::rms_norm_backward,
      .rope = cuda::rope,
      .product = cuda::product,
      .products = cuda::products,
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
