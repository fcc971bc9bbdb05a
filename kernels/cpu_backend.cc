// SPDX-License-Identifier: Apache-2.0
// The built-in backend: a table, nothing else.
#include <cstdlib>
#include <cstring>

#include "backend.h"
#include "cpu_ops.h"

namespace bantam {

const Backend& cpu_backend() {
  static const Backend backend = {
      .name = "cpu",
      .host_memory = true,
      .allocate = [](size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); },
      .release = [](void* p) { std::free(p); },
      .upload = [](void* d, const void* h, size_t bytes) { std::memcpy(d, h, bytes); },
      .download = [](void* h, const void* d, size_t bytes) { std::memcpy(h, d, bytes); },
      .embedding = nullptr,
      .rms_norm = nullptr,
      .rms_norm_backward = nullptr,
      .rope = nullptr,
      .product = cpu::product,
      .gated_act = nullptr,
      .gated_act_backward = nullptr,
      .attention = nullptr,
      .attention_backward = nullptr,
      .cross_entropy = nullptr,
      .dropout = nullptr,
      .copy = nullptr,
      .adamw = nullptr,
      .grad_norm = nullptr,
  };
  return backend;
}

}  // namespace bantam
