// SPDX-License-Identifier: Apache-2.0
// A device whose ops do nothing: what is left of a step is the host's own time (host_bench.cc).
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "kernels/backend.h"

namespace {
template <class Args>
void nothing(bantam::Context&, const Args&) {}
}  // namespace

extern "C" const bantam::Backend* bantam_backend(int abi) {
  if (abi != bantam::Backend::kAbi) return nullptr;
  static const bantam::Backend backend = [] {
    bantam::Backend b{};
    b.name = "null";
    b.host_memory = false;
    b.synchronize = [] {};
    b.time_mark = [](int) {};
    b.seconds_between = [](int, int) { return 0.0; };
    b.range_begin = [](const char*) {};
    b.range_end = [] {};
    b.allocate = [](size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); };
    b.release = [](void* p) { std::free(p); };
    b.upload = [](void*, const void*, size_t) {};
    b.upload_async = b.upload;
    b.download = [](void* host, const void*, size_t bytes) { std::memset(host, 0, bytes); };
    b.fill = [](void*, int, size_t) {};
    b.reserve_workspace = [](size_t) {};
    b.workspace_high = []() -> size_t { return 0; };
    b.reserve_staging = [](size_t) {};
    b.staging_high = []() -> size_t { return 0; };
    b.reserve_decoded_weights = [](const size_t*, size_t) {};
    b.prefetch_weight = [](bantam::Context&, const bantam::WeightView&, bantam::Math) {};
    b.weights_decoded = [](bool) -> size_t { return 0; };
    b.embedding = nothing;
    b.rms_norm = nothing;
    b.rms_norm_backward = nothing;
    b.rope = nothing;
    b.product = nothing;
    b.products = nothing;
    b.gated_act = nothing;
    b.gated_act_backward = nothing;
    b.attention = nothing;
    b.attention_backward = nothing;
    b.cross_entropy = nothing;
    b.dropout = nothing;
    b.copy = nothing;
    b.adamw = nothing;
    b.grad_norm = nothing;
    return b;
  }();
  return &backend;
}
