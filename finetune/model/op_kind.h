// SPDX-License-Identifier: Apache-2.0
// What each kind of op is, stated in one place: forward, backward, what backward reads, cost, what may work in place.
// Backward, recompute, memory and cost of every model are derived from this table and the op list.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "../../kernels/backend.h"
#include "../../kernels/context.h"
#include "../../kernels/tensor.h"
#include "../../quant/weight_store.h"
#include "layer_graph.h"

namespace bantam {

/// Keys and values of the tokens so far, of one layer (generation).
struct KvCache {
  TensorView k, v;     ///< [capacity, kv_heads * head_dim]
  int64_t length = 0;  ///< rows in use; the attention op appends
};

/// Step constants of one micro-batch, valid for T tokens. Host memory.
struct StepInputs {
  int64_t tokens = 0;                   ///< T
  const int32_t* ids = nullptr;         ///< [T]
  const int32_t* labels = nullptr;      ///< [T], kIgnoreLabel where not trained
  const float* weights = nullptr;       ///< [T], what each row's gradient is multiplied by
  const int32_t* positions = nullptr;   ///< [T]
  const int32_t* cu_seqlens = nullptr;  ///< [num_seqs + 1]
  int64_t num_seqs = 0;
  ConstTensorView cos, sin;           ///< [T, head_dim / 2] f32
  const uint64_t* row_key = nullptr;  ///< [T], dropout
  bool training = false;              ///< dropout is active
};

/// What ops take of a device beside the arena.
struct DeviceNeeds {
  struct Decoded {
    int layer = -1;    ///< -1: top of the model
    size_t bytes = 0;  ///< as products take it
    auto operator<=>(const Decoded&) const = default;
  };
  size_t workspace = 0;                    ///< bytes: the most that one op takes
  size_t upload = 0;                       ///< bytes: the largest copy of upload_async
  std::map<std::string, Decoded> decoded;  ///< frozen matrices that products decode, by full name
};

/// A run that computes nothing: the op tells what it would take.
struct OpPlanning {
  const WeightFormats& formats;
  const AttentionLibrary& attention;  ///< of the device
  DeviceNeeds& needs;
};

/// One execution of one op: views of its values and gradients at T rows.
struct OpRun {
  Context* ctx;  ///< null when planning
  const ModelGraph& model;
  const LayerGraph& graph;
  const Op& op;
  const StepInputs& step;
  const WeightLease& weights;
  const AdapterSet* adapters = nullptr;  ///< values; null: the bare base
  AdapterSet* grads = nullptr;           ///< where parameter gradients are added (the same set)
  KvCache* cache = nullptr;
  const OpPlanning* planning = nullptr;   ///< set: views have addresses that nobody reads, weights and adapters are not
                                          ///< there, nothing is computed
  std::array<TensorView, 3> in{}, din{};  ///< din absent: not wanted
  std::array<GradMode, 3> mode{};         ///< of din
  std::array<TensorView, 2> out{}, dout{};
  void* scratch = nullptr;
  size_t scratch_bytes = 0;

  Math math() const { return model.dtype == DType::bf16 ? Math::bf16 : Math::f32; }
};

/// What planning needs to size an op's scratch.
struct ScratchSize {
  int64_t tokens = 0;
  size_t loss_chunk_bytes = 0;
};

struct OpKindInfo {
  const char* name = nullptr;
  uint32_t backward_reads_in = 0;   ///< bit i: backward reads input i (as far as it is present)
  uint32_t backward_reads_out = 0;  ///< bit j: backward reads output j
  uint32_t grad_in = 0;             ///< bit i: input i gets a gradient from this op
  uint32_t grad_out = 0;            ///< bit j: output j carries one
  bool nearly_free = false;         ///< rebuilding costs about one pass over its values, no product
  bool loss = false;                ///< backward computes the outputs too; forward runs in evaluation only
  int forward_in_place = -1;        ///< output 0 may take the storage of this input; -1: none
  uint32_t dgrad_over_input = 0;  ///< bit i: the gradient of input i may take the storage of input i, once that is dead
  int dgrad_over_dout = -1;       ///< the gradient of this input may take the storage of output 0's gradient; -1: none
  bool dout_passes_through = false;  ///< ... and is that gradient, unchanged (a residual): nothing is computed
  void (*forward)(OpRun&) = nullptr;
  void (*backward)(OpRun&) = nullptr;  ///< null: nothing below it is trained
};

const OpKindInfo& info(OpKind kind);

/// Floating-point operations (a multiply-add is two) for T tokens in sequences of `sequence` tokens (0: one sequence);
/// products and attention only.
double forward_flops(const ModelConfig& config, const LayerGraph& graph, const Op& op, int64_t tokens,
                     int64_t sequence = 0);
/// `dx`: whether the gradient of the (first) input is wanted.
double backward_flops(const ModelConfig& config, const LayerGraph& graph, const Op& op, int64_t tokens, bool dx,
                      int64_t sequence = 0);
/// Bytes that a pass over the op's values reads and writes; what the nearly free ops cost.
double forward_bytes(const LayerGraph& graph, const Op& op, int64_t tokens);
double backward_bytes(const LayerGraph& graph, const Op& op, int64_t tokens);
/// Bytes of scratch in the arena, live during one execution only.
size_t forward_scratch(const ModelConfig& config, const LayerGraph& graph, const Op& op, const ScratchSize& size);
size_t backward_scratch(const ModelConfig& config, const LayerGraph& graph, const Op& op, const ScratchSize& size);
/// Name within the stage of the frozen matrix that this op multiplies with, forward or backward; empty: none. `dx`: as
/// above.
std::string product_weight(const Op& op, bool backward, bool dx);
/// Whether the op reads and gives the gradient of some columns of input i only, which no other op has: a linear's of
/// the z that its group shares.
bool writes_part(const Op& op, size_t i);
/// Whether this op has parameters of its own that are trained.
bool has_trained_parameters(const LayerGraph& graph, const Op& op);

}  // namespace bantam
