// SPDX-License-Identifier: Apache-2.0
#include "cudnn_graph.h"

#include <cudnn_frontend.h>

#include <cstdlib>
#include <unordered_map>

#include "../error.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend finds all of cuDNN's functions through it
}

namespace bantam::cuda {

namespace {
namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

// Tensors of a graph are known by number: the matrices, then their offsets, then the lengths twice.
int64_t number_of(int tensor) {
  return 1 + tensor;
}
int64_t number_of_offsets(int tensor) {
  return 1 + kCudnnTensors + tensor;
}
constexpr int64_t kLengthsOfQueries = 1 + 2 * kCudnnTensors, kLengthsOfKeys = kLengthsOfQueries + 1;

bool of_keys(int tensor) {
  return tensor == kK || tensor == kV || tensor == kDk || tensor == kDv;
}

Tensor vector_of(Graph& graph, int64_t number, int64_t n) {
  return graph.tensor(Tensor_attributes()
                          .set_name("words" + std::to_string(number))
                          .set_uid(number)
                          .set_dim({n, 1, 1, 1})
                          .set_stride({1, 1, 1, 1})
                          .set_data_type(fe::DataType_t::INT32));
}

// [sequence, head, token, column]; the stride between sequences is not used where there are offsets.
void describe(Graph& graph, const CudnnShape& s, int tensor, Tensor_attributes& t) {
  const int64_t heads = of_keys(tensor) ? s.kv_heads : s.heads, columns = tensor == kLse ? 1 : s.head_dim;
  const int64_t stride = s.strides[static_cast<size_t>(tensor)];
  t.set_uid(number_of(tensor))
      .set_dim({s.sequences, heads, s.length, columns})
      .set_stride({s.length * stride, columns, stride, 1})
      .set_data_type(tensor == kLse ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16)
      .set_ragged_offset(vector_of(graph, number_of_offsets(tensor), s.sequences + 1));
}
Tensor input(Graph& graph, const CudnnShape& s, int tensor) {
  Tensor_attributes t;
  t.set_name("input" + std::to_string(tensor));
  describe(graph, s, tensor, t);
  return graph.tensor(t);
}

// What both directions are told. Sequences are as long in queries as in keys, so the diagonal is theirs.
template <class Attributes>
void set_common(Graph& graph, const CudnnShape& s, Attributes& a) {
  a.set_name("attention")
      .set_attn_scale(s.scale)
      .set_padding_mask(true)
      .set_seq_len_q(vector_of(graph, kLengthsOfQueries, s.sequences))
      .set_seq_len_kv(vector_of(graph, kLengthsOfKeys, s.sequences))
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (s.window > 0) a.set_diagonal_band_left_bound(static_cast<int>(s.window));
}

void add_forward(Graph& graph, const CudnnShape& s) {
  fe::graph::SDPA_attributes a;
  set_common(graph, s, a);
  a.set_generate_stats(true);
  const auto [o, lse] = graph.sdpa(input(graph, s, kQ), input(graph, s, kK), input(graph, s, kV), a);
  o->set_output(true);
  lse->set_output(true);
  describe(graph, s, kO, *o);
  describe(graph, s, kLse, *lse);
}

void add_backward(Graph& graph, const CudnnShape& s) {
  fe::graph::SDPA_backward_attributes a;
  set_common(graph, s, a);
  a.set_deterministic_algorithm(true).set_max_total_seq_len_q(s.tokens).set_max_total_seq_len_kv(s.tokens);
  const auto gradients = graph.sdpa_backward(input(graph, s, kQ), input(graph, s, kK), input(graph, s, kV),
                                             input(graph, s, kO), input(graph, s, kDout), input(graph, s, kLse), a);
  for (int i = 0; i < 3; ++i) {
    gradients[static_cast<size_t>(i)]->set_output(true);
    describe(graph, s, kDq + i, *gradients[static_cast<size_t>(i)]);
  }
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ErrorCode::device, str("cuDNN: ", what, " failed with status ", static_cast<int>(status)),
              "BANTAM_CUDNN=0 does without cuDNN");
}
}  // namespace

int cudnn_version(std::string* why) {
  static std::string reason;
  static const int version = [] {
    fe::cudnn_dlhandle = open_cudnn(&reason);
    if (!fe::cudnn_dlhandle) return 0;
    setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 0);
    return static_cast<int>(fe::detail::get_backend_version());
  }();
  *why = reason;
  return version;
}

std::shared_ptr<cudnnContext> cudnn_handle(void* stream) {
  cudnnHandle_t handle = nullptr;
  check(fe::detail::create_handle(&handle), "cudnnCreate");
  const std::shared_ptr<cudnnContext> owner(handle, [](cudnnHandle_t h) {
    static_cast<void>(fe::detail::destroy_handle(h));  // at the end of a thread nobody is left to hear of an error
  });
  check(fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
  return owner;
}

std::shared_ptr<Graph> cudnn_graph(const CudnnShape& shape) {
  auto graph = std::make_shared<Graph>();
  // With the version given, the frontend has nothing to ask the CUDA runtime for, which it would load by a name that
  // may not be that of ours.
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(shape.capability);
  shape.backward ? add_backward(*graph, shape) : add_forward(*graph, shape);
  return graph;
}

std::string cudnn_plan(Graph& graph, cudnnContext* handle, size_t* workspace) try {
  fe::error_t e = graph.validate();
  if (e.is_good()) e = graph.build_operation_graph(handle);
  if (e.is_good()) e = graph.create_execution_plans({fe::HeurMode_t::A});
  if (e.is_good()) e = graph.check_support();
  if (e.is_good()) e = graph.build_plans();
  int64_t bytes = 0;
  if (e.is_good()) e = graph.get_workspace_size(bytes);
  *workspace = static_cast<size_t>(bytes);
  return e.is_good() ? "" : "cuDNN: " + e.get_message();
} catch (const std::exception& e) {
  return str("cuDNN: ", e.what());
}

void cudnn_run(const CudnnShape& shape, Graph& graph, cudnnContext* handle, const CudnnPointers& p, void* workspace) {
  std::unordered_map<int64_t, void*> pack;
  const auto words = [](const int32_t* w) { return const_cast<int32_t*>(w); };
  for (int i = 0; i < kCudnnTensors; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!p.data[at]) continue;
    pack[number_of(i)] = p.data[at];
    pack[number_of_offsets(i)] = words(p.offsets[at]);
  }
  pack[kLengthsOfQueries] = pack[kLengthsOfKeys] = words(p.lengths);
  fe::error_t e = graph.execute(handle, pack, workspace);
  if (e.is_good()) return;
  throw Error(ErrorCode::device,
              str("cuDNN: attention", shape.backward ? " backward" : "", " of ", shape.sequences,
                  " sequences of up to ", shape.length, " tokens failed: ", e.get_message()),
              "BANTAM_CUDNN=0 does without cuDNN");
}

}  // namespace bantam::cuda
