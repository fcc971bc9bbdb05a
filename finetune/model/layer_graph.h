// SPDX-License-Identifier: Apache-2.0
// A stage of a model (one transformer layer, the embedding, the tail with the loss) as a straight list of ops over
// named values. It is written once per family; backward, recompute, memory and cost are derived from it (op_kind.h,
// ../recompute/program.h).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../../kernels/dtype.h"
#include "../../kernels/gated_act.h"
#include "../../lora/adapter_set.h"
#include "model_config.h"

namespace bantam {

enum class OpKind : uint8_t {
  embedding,
  rms_norm,
  linear,
  lora_down,
  rope,
  attention,
  gated_act,
  add,
  dropout,
  cross_entropy
};

/// A value is [T, width]; the index into LayerGraph::values is its identity.
struct ValueInfo {
  std::string name;  ///< "input_layernorm", "self_attn.q_proj", "self_attn.q_proj.lora", "attention.lse"
  int64_t width = 0;
  DType dtype = DType::f32;
  bool operator==(const ValueInfo&) const = default;
};

struct Op {
  OpKind kind{};
  std::string module;    ///< within the stage: "self_attn.q_proj"; weights are module + ".weight"
  std::vector<int> in;   ///< values; -1: optional and absent. linear: x, z, residual
  std::vector<int> out;  ///< values. rms_norm: y, rstd. attention: o, lse. cross_entropy: loss
  Act act = Act::silu;
  int site = 0;                ///< dropout: number of the site within the layer
  bool has_bias = false;       ///< linear
  bool trainable = false;      ///< rms_norm: the weight is a parameter of the adapter set
  bool lora_dx_fused = false;  ///< linear and its lora_down read the same x: linear's backward gives the whole dx
  int64_t lora_rank = 0;       ///< lora_down, linear with an adapter: r
  int64_t z_column = 0;        ///< linear: where its r columns of z begin; others of the group have the rest
  /// lora_down for several linears that read the same x, as one product with their stacked lora_A: z is [T, n r], the
  /// modules' columns side by side. `module` is the first. Empty: `module` alone.
  std::vector<std::string> group;
  bool operator==(const Op&) const = default;
};

struct LayerGraph {
  int layer = -1;      ///< layer number; -1: top of the model (embedding, tail)
  std::string prefix;  ///< "model.layers.3." or ""
  std::vector<ValueInfo> values;
  std::vector<Op> ops;
  int input = -1, output = -1;  ///< value that comes from the previous stage and goes to the next; -1: none
  /// The same but for its place in the model.
  bool alike(const LayerGraph& o) const {
    return values == o.values && ops == o.ops && input == o.input && output == o.output;
  }
};

struct ModelGraph {
  ModelConfig config;
  DType dtype = DType::bf16;  ///< of activations
  LoraConfig lora;
  std::vector<LayerGraph> stages;  ///< embedding, layers, tail (norm and loss)
};

/// Name of the head's matrix in the top lease.
std::string head_weight_name(const ModelConfig& config);

using Value = int;

/// A linear module, for GraphBuilder::linears.
struct LinearSpec {
  std::string module;
  int64_t out_width = 0;
  bool bias = false;
};

class GraphBuilder {
 public:
  /// `adapters` may be null: the bare base. It decides which linears get lora ops and which weights are trainable.
  GraphBuilder(const ModelConfig& config, DType dtype, const AdapterSet* adapters, int layer);

  Value input(const std::string& name, int64_t width);
  Value embedding(const std::string& module, int64_t width);
  Value rms_norm(Value x, const std::string& module);
  Value linear(Value x, const std::string& module, int64_t out_width, bool bias = false);
  /// Linears of the same x (q, k and v; gate and up). Without dropout those with adapters share one lora_down, where
  /// the adapter set has their lora_A stacked; it is rebuilt whole or not at all.
  template <size_t N>
  std::array<Value, N> linears(Value x, const LinearSpec (&specs)[N]) {
    std::array<Value, N> y;
    linear_ops(x, specs, y);
    return y;
  }
  /// residual + x W^T, added in the product's epilogue.
  Value add_linear(Value residual, Value x, const std::string& module, int64_t out_width, bool bias = false);
  Value rope(Value x);
  Value attention(Value q, Value k, Value v);
  Value gated_act(Value gate, Value up, Act act = Act::silu);
  /// a + b, where no product's epilogue can add it (a norm after a sub-layer).
  Value add(Value a, Value b, const std::string& name);
  /// Loss of the tail: rows of -log p. `module` names the head's weight.
  Value cross_entropy(Value x, const std::string& module);
  LayerGraph output(Value x);  ///< the value that the next stage reads
  LayerGraph finish();         ///< no output: the tail

 private:
  Value add_value(const std::string& name, int64_t width, DType dtype);
  struct LoraInput {
    Value z = -1;  ///< -1: no adapter
    int64_t column = 0;
    bool dx_fused = false;
  };
  bool has_adapter(const std::string& module) const;
  LoraInput lora_input(Value x, const std::string& module);
  Value linear_op(Value residual, Value x, const LinearSpec& spec, const LoraInput& lora);
  void linear_ops(Value x, std::span<const LinearSpec> specs, std::span<Value> y);
  int64_t width(Value v) const { return graph_.values[static_cast<size_t>(v)].width; }

  const ModelConfig& config_;
  DType dtype_;
  const AdapterSet* adapters_;
  LayerGraph graph_;
  int sites_ = 0;
};

/// The Llama family: Llama 1 to 3, SmolLM2, TinyLlama, Mistral without a window.
LayerGraph llama_layer(const ModelConfig& config, DType dtype, const AdapterSet* adapters, int layer);

/// What the last stage ends with: the loss, or the normalised hidden states that the head reads (generation, logits).
enum class Tail : uint8_t { loss, hidden };

/// All stages of the model that config.model_type names; adapters null: the bare base.
ModelGraph build_model_graph(const ModelConfig& config, DType dtype, const AdapterSet* adapters,
                             Tail tail = Tail::loss);

/// Linear modules inside the layers, with their sizes, in the order of the graph: what LoRA may target.
std::vector<AdapterSet::Module> linear_modules(const ModelConfig& config);

}  // namespace bantam
