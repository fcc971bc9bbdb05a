// SPDX-License-Identifier: Apache-2.0
// The slice of cuDNN's frontend that the backend uses, by its names, for the emulated device: fake_cudnn.cc computes
// what the graph says. What the real one has beside this does not compile here.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

struct cudnnContext;
using cudnnHandle_t = cudnnContext*;
enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_NOT_INITIALIZED = 1001, CUDNN_STATUS_BAD_PARAM = 2000 };

namespace cudnn_frontend {

extern void* cudnn_dlhandle;

enum class DataType_t { NOT_SET, FLOAT, BFLOAT16, INT32 };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };
enum class HeurMode_t { A };

struct error_t {
  std::string message;
  bool is_good() const { return message.empty(); }
  std::string get_message() { return message; }  // not const, as the real one
};

namespace detail {
cudnnStatus_t create_handle(cudnnHandle_t* handle);
cudnnStatus_t destroy_handle(cudnnHandle_t handle);
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream);
size_t get_backend_version();
}  // namespace detail

namespace graph {

struct Tensor_attributes {
  std::string name;
  int64_t uid = 0;
  std::vector<int64_t> dim, stride;
  DataType_t type = DataType_t::NOT_SET;
  std::shared_ptr<Tensor_attributes> offsets;
  bool output = false;

  Tensor_attributes& set_name(const std::string& v) { return name = v, *this; }
  Tensor_attributes& set_uid(int64_t v) { return uid = v, *this; }
  Tensor_attributes& set_dim(const std::vector<int64_t>& v) { return dim = v, *this; }
  Tensor_attributes& set_stride(const std::vector<int64_t>& v) { return stride = v, *this; }
  Tensor_attributes& set_data_type(DataType_t v) { return type = v, *this; }
  Tensor_attributes& set_ragged_offset(const std::shared_ptr<Tensor_attributes>& v) { return offsets = v, *this; }
  Tensor_attributes& set_output(bool v) { return output = v, *this; }
};
using Tensor = std::shared_ptr<Tensor_attributes>;

/// What is asked of an attention, in both directions.
struct Attention {
  std::optional<float> scale;
  bool padding_mask = false, stats = false, deterministic = false;
  Tensor lengths_q, lengths_kv;
  DiagonalAlignment_t alignment = DiagonalAlignment_t::TOP_LEFT;
  std::optional<int64_t> left, right, tokens_q, tokens_kv;
};
template <class Self>
struct AttentionSetters {
  Attention a;
  Self& set_name(const std::string&) { return self(); }
  Self& set_attn_scale(float v) { return a.scale = v, self(); }
  Self& set_padding_mask(bool v) { return a.padding_mask = v, self(); }
  Self& set_seq_len_q(const Tensor& v) { return a.lengths_q = v, self(); }
  Self& set_seq_len_kv(const Tensor& v) { return a.lengths_kv = v, self(); }
  Self& set_diagonal_alignment(DiagonalAlignment_t v) { return a.alignment = v, self(); }
  Self& set_diagonal_band_left_bound(int v) { return a.left = v, self(); }
  Self& set_diagonal_band_right_bound(int v) { return a.right = v, self(); }

 private:
  Self& self() { return static_cast<Self&>(*this); }
};
struct SDPA_attributes : AttentionSetters<SDPA_attributes> {
  SDPA_attributes& set_generate_stats(bool v) { return a.stats = v, *this; }
};
struct SDPA_backward_attributes : AttentionSetters<SDPA_backward_attributes> {
  SDPA_backward_attributes& set_deterministic_algorithm(bool v) { return a.deterministic = v, *this; }
  SDPA_backward_attributes& set_max_total_seq_len_q(int64_t v) { return a.tokens_q = v, *this; }
  SDPA_backward_attributes& set_max_total_seq_len_kv(int64_t v) { return a.tokens_kv = v, *this; }
};

class Graph {
 public:
  Graph& set_io_data_type(DataType_t v) { return io_ = v, *this; }
  Graph& set_intermediate_data_type(DataType_t v) { return intermediate_ = v, *this; }
  Graph& set_compute_data_type(DataType_t v) { return compute_ = v, *this; }
  Graph& set_sm_version(int v) { return sm_ = v, *this; }
  Tensor tensor(const Tensor_attributes& t);
  std::array<Tensor, 2> sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SDPA_attributes& a);
  std::array<Tensor, 3> sdpa_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                      const Tensor& dout, const Tensor& stats, const SDPA_backward_attributes& a);
  error_t validate();
  error_t build_operation_graph(cudnnHandle_t handle);
  error_t create_execution_plans(const std::vector<HeurMode_t>& modes);
  error_t check_support();
  error_t build_plans();
  error_t get_workspace_size(int64_t& bytes) const;
  error_t execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& pointers, void* workspace) const;

 private:
  DataType_t io_ = DataType_t::NOT_SET, intermediate_ = DataType_t::NOT_SET, compute_ = DataType_t::NOT_SET;
  int sm_ = 0, stage_ = 0;  // stage: how far the plan is
  bool backward_ = false;
  std::vector<Tensor> all_, matrices_;  // matrices: q, k, v, o, lse, then dout, dq, dk, dv
  Attention attention_;
  int64_t workspace_ = 0;
};

}  // namespace graph
}  // namespace cudnn_frontend
