// SPDX-License-Identifier: Apache-2.0
#include "device_needs.h"

#include <algorithm>
#include <numeric>

#include "../model/op_kind.h"
#include "executor.h"

namespace bantam {

DeviceNeeds device_needs(const ModelGraph& model, const Program& program, const WeightFormats& formats,
                         const AttentionLibrary& attention) {
  DeviceNeeds needs;
  const OpPlanning planning{formats, attention, needs};
  const StepInputs step{.tokens = program.max_tokens, .num_seqs = program.max_tokens, .training = true};
  const WeightLease no_weights;
  // Values of one buffer have one address, as in a run; it is none that memory has.
  const auto address = [](int buffer) { return reinterpret_cast<void*>((static_cast<uintptr_t>(buffer) + 1) << 12); };
  for (const Instr& n : program.instrs) {
    const LayerGraph& graph = model.stages[static_cast<size_t>(n.stage)];
    const Op& op = graph.ops[static_cast<size_t>(n.op)];
    OpRun r{.ctx = nullptr,
            .model = model,
            .graph = graph,
            .op = op,
            .step = step,
            .weights = no_weights,
            .planning = &planning};
    bind_views(r, n, [&](const ValueRef& v) {
      return v.buffer < 0 ? TensorView() : TensorView(address(v.buffer), v.dtype, program.max_tokens, v.width);
    });
    if (n.scratch >= 0) {
      r.scratch = address(n.scratch);
      r.scratch_bytes = program.buffers[static_cast<size_t>(n.scratch)].bytes;
    }
    n.backward ? info(op.kind).backward(r) : info(op.kind).forward(r);
  }
  needs.upload = std::max(needs.upload, StepBuffers::upload_bytes(model.config, program.max_tokens));
  return needs;
}

DeviceNeeds combined(DeviceNeeds a, const DeviceNeeds& b) {
  a.workspace = std::max(a.workspace, b.workspace);
  a.upload = std::max(a.upload, b.upload);
  a.decoded.insert(b.decoded.begin(), b.decoded.end());
  return a;
}

size_t sum_of(std::span<const size_t> slots) {
  return std::accumulate(slots.begin(), slots.end(), size_t{0});
}

std::vector<size_t> decoded_slots(const DeviceNeeds& needs, size_t budget) {
  std::vector<size_t> all, layer;
  std::map<int, std::map<size_t, size_t>> counts;  // by layer: how many of each size
  for (const auto& [name, d] : needs.decoded) {
    all.push_back(d.bytes);
    ++counts[d.layer][d.bytes];
  }
  std::sort(all.begin(), all.end());
  if (all.size() <= 2 || sum_of(all) <= budget) return all;
  std::map<size_t, size_t> most;
  for (const auto& [l, sizes] : counts)
    for (const auto& [bytes, n] : sizes) most[bytes] = std::max(most[bytes], n);
  for (const auto& [bytes, n] : most) layer.insert(layer.end(), n, bytes);
  if (const size_t layers = budget / sum_of(layer); layers > 0) {
    std::vector<size_t> slots;
    for (size_t k = 0; k < layers; ++k) slots.insert(slots.end(), layer.begin(), layer.end());
    std::sort(slots.begin(), slots.end());
    return slots;
  }
  return {all.back(), all.back()};
}

}  // namespace bantam
