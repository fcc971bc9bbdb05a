// SPDX-License-Identifier: Apache-2.0
// The built-in backend: a table, nothing else.
#include <cstring>

#include "backend.h"
#include "cpu_ops.h"
#include "host_memory.h"

namespace bantam {

const Backend& cpu_backend() {
  static const Backend backend = {
      .name = "cpu",
      .host_memory = true,
      .allocate = allocate_host,
      .release = release_host,
      .upload = [](void* d, const void* h, size_t bytes) { std::memcpy(d, h, bytes); },
      .upload_async = [](void* d, const void* h, size_t bytes) { std::memcpy(d, h, bytes); },
      .download = [](void* h, const void* d, size_t bytes) { std::memcpy(h, d, bytes); },
      .fill = [](void* d, int byte, size_t bytes) { std::memset(d, byte, bytes); },
      .embedding = cpu::embedding,
      .rms_norm = cpu::rms_norm,
      .rms_norm_backward = cpu::rms_norm_backward,
      .rope = cpu::rope,
      .product = cpu::product,
      .products = cpu::products,
      .gated_act = cpu::gated_act,
      .gated_act_backward = cpu::gated_act_backward,
      .attention = cpu::attention,
      .attention_backward = cpu::attention_backward,
      .cross_entropy = cpu::cross_entropy,
      .dropout = cpu::dropout,
      .copy = cpu::copy,
      .adamw = cpu::adamw,
      .grad_norm = cpu::grad_norm,
      .quantize_nf4 = cpu::quantize_nf4,
  };
  return backend;
}

}  // namespace bantam
