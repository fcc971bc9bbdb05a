// SPDX-License-Identifier: Apache-2.0
// Plans are made for classes of shapes and kept by the thread, also those that cuDNN refuses or that want too much
// workspace, so that a call goes the same way each time.
#include "cudnn_attention.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "../cudnn_shapes.h"
#include "../device_scratch.h"
#include "cuda_ops.h"
#include "cudnn_graph.h"
#include "device.h"

namespace bantam::cuda {

namespace {
struct Plan {
  std::shared_ptr<cudnn_frontend::graph::Graph> graph;  // null: the backend's own kernels
};
struct Library {
  std::shared_ptr<cudnnContext> handle;
  std::map<CudnnShape, Plan> plans;
};
Library& library() {
  thread_local Library l;
  if (!l.handle) l.handle = cudnn_handle(stream());
  return l;
}

// The library on this process's device.
const AttentionLibrary& here() {
  static const AttentionLibrary l = attention_library(process_device(0));
  return l;
}

bool same_sequences(const AttentionShape& s) {
  return s.num_seqs <= kCudnnSequences && std::equal(s.cu_q, s.cu_q + s.num_seqs + 1, s.cu_k);
}

CudnnShape shape_of(const AttentionShape& s) {
  int64_t longest = 0;
  for (int64_t i = 0; i < s.num_seqs; ++i) longest = std::max<int64_t>(longest, s.cu_q[i + 1] - s.cu_q[i]);
  return {.capability = here().capability,
          .sequences = power_class(s.num_seqs, 1),
          .length = power_class(longest, 128),
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .window = s.window < longest ? s.window : 0,  // a longer one holds every key
          .scale = s.scale};
}

// The lengths of the sequences and, for each different stride, where they begin; sequences that fill up the class are
// empty ones at the end.
void send_table(const AttentionShape& s, const CudnnShape& shape, int tensors, char* table, CudnnPointers& pointers) {
  auto* const device = reinterpret_cast<int32_t*>(table);
  const auto n = static_cast<size_t>(s.num_seqs), all = static_cast<size_t>(shape.sequences);
  std::vector<int32_t> words(all, 0);
  for (size_t i = 0; i < n; ++i) words[i] = s.cu_q[i + 1] - s.cu_q[i];
  pointers.lengths = device;
  std::map<int64_t, const int32_t*> offsets;
  for (size_t t = 0; t < static_cast<size_t>(tensors); ++t) {
    const auto [at, is_new] = offsets.try_emplace(shape.strides[t], device + words.size());
    if (is_new)
      for (size_t i = 0; i <= all; ++i)
        words.push_back(static_cast<int32_t>(s.cu_q[std::min(i, n)] * shape.strides[t]));
    pointers.offsets[t] = at->second;
  }
  send_words(words, device);
}

template <class Args>
bool run(const Args& args, CudnnShape shape, const std::vector<ConstTensorView>& matrices) {
  CudnnPointers pointers;
  for (size_t i = 0; i < matrices.size(); ++i) {
    shape.strides[i] = matrices[i].stride;
    pointers.data[i] = const_cast<void*>(matrices[i].data);
  }
  const size_t converted_bytes = cudnn_converted(args);
  if (converted_bytes > 0) shape.strides[kDout] = args.shape.heads * args.shape.head_dim;
  Library& l = library();
  auto found = l.plans.find(shape);
  if (found == l.plans.end()) {
    Plan plan{cudnn_graph(shape)};
    size_t bytes = 0;
    if (!cudnn_plan(*plan.graph, l.handle.get(), &bytes).empty() || bytes > cudnn_workspace(args, here()))
      plan.graph = nullptr;
    found = l.plans.emplace(shape, std::move(plan)).first;
  }
  if (!found->second.graph) return false;
  char* const table = workspace(device_scratch(args, here()));  // then dout as bf16, then what is the plan's
  char* const converted = table + kCudnnTable;
  send_table(args.shape, shape, static_cast<int>(matrices.size()), table, pointers);
  if constexpr (requires { args.dout; }) {
    if (converted_bytes > 0) {
      convert(args.dout, {converted, DType::bf16, args.dout.rows, args.dout.cols}, GradMode::write);
      pointers.data[kDout] = converted;
    }
  }
  cudnn_run(shape, *found->second.graph, l.handle.get(), pointers, converted + converted_bytes);
  return true;
}
}  // namespace

AttentionLibrary attention_library(int device) {
  AttentionLibrary l;
  std::string why;
  const DeviceInfo info = device_info(device);
  l.capability = 10 * info.major + info.minor;
  l.version = cudnn_version(&why);
  if (l.version > 0 && l.version < kCudnnLeast) {
    why = "cuDNN " + cudnn_text(l.version) + " is older than " + cudnn_text(kCudnnLeast);
    l.version = 0;
  }
  why.copy(l.why, sizeof l.why - 1);
  return l;
}

bool cudnn_attention(const AttentionArgs& a) {
  if (!cudnn_takes(a, here()) || !same_sequences(a.shape)) return false;
  return run(a, shape_of(a.shape), {a.q, a.k, a.v, a.o, a.lse});
}

bool cudnn_attention_backward(const AttentionBackwardArgs& a) {
  if (!cudnn_takes(a, here()) || !same_sequences(a.shape)) return false;
  CudnnShape shape = shape_of(a.shape);
  shape.backward = true;
  shape.tokens = token_class(a.q.rows);
  return run(a, shape, {a.q, a.k, a.v, a.o, a.lse, a.dout, a.dq, a.dk, a.dv});
}

}  // namespace bantam::cuda
