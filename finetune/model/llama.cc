// SPDX-License-Identifier: Apache-2.0
// The Llama family, written once.
#include "../../kernels/error.h"
#include "layer_graph.h"

namespace bantam {

LayerGraph llama_layer(const ModelConfig& c, DType dtype, const AdapterSet* adapters, int layer) {
  GraphBuilder g(c, dtype, adapters, layer);
  Value x = g.input("hidden", c.hidden_size);
  Value n = g.rms_norm(x, "input_layernorm");
  const auto [q, k, v] = g.linears(n, {{"self_attn.q_proj", c.q_size(), c.attention_bias},
                                       {"self_attn.k_proj", c.kv_size(), c.attention_bias},
                                       {"self_attn.v_proj", c.kv_size(), c.attention_bias}});
  const Value q_rope = g.rope(q), k_rope = g.rope(k);
  const Value o = g.attention(q_rope, k_rope, v);
  x = g.add_linear(x, o, "self_attn.o_proj", c.hidden_size, c.attention_bias);
  n = g.rms_norm(x, "post_attention_layernorm");
  const auto [gate, up] = g.linears(
      n, {{"mlp.gate_proj", c.intermediate_size, c.mlp_bias}, {"mlp.up_proj", c.intermediate_size, c.mlp_bias}});
  const Value a = g.gated_act(gate, up);
  return g.output(g.add_linear(x, a, "mlp.down_proj", c.hidden_size, c.mlp_bias));
}

namespace {
std::string head_module(const ModelConfig& c) {
  return c.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
}
}  // namespace

std::string head_weight_name(const ModelConfig& c) {
  return head_module(c) + ".weight";
}

ModelGraph build_model_graph(const ModelConfig& c, DType dtype, const AdapterSet* adapters, Tail kind) {
  if (c.model_type != "llama")
    throw Error(ErrorCode::model, str("model_type: found '", c.model_type, "', expected 'llama'"));
  ModelGraph m{.config = c, .dtype = dtype, .lora = adapters ? adapters->config() : LoraConfig{}, .stages = {}};
  GraphBuilder embedding(c, dtype, adapters, -1);
  m.stages.push_back(embedding.output(embedding.embedding("model.embed_tokens", c.hidden_size)));
  for (int l = 0; l < c.num_hidden_layers; ++l) m.stages.push_back(llama_layer(c, dtype, adapters, l));
  GraphBuilder tail(c, dtype, adapters, -1);
  const Value hidden = tail.rms_norm(tail.input("hidden", c.hidden_size), "model.norm");
  if (kind == Tail::loss) tail.cross_entropy(hidden, head_module(c));
  m.stages.push_back(kind == Tail::loss ? tail.finish() : tail.output(hidden));
  return m;
}

std::vector<AdapterSet::Module> linear_modules(const ModelConfig& c) {
  std::vector<AdapterSet::Module> out;
  for (const LayerGraph& g : build_model_graph(c, DType::f32, nullptr).stages)
    for (const Op& op : g.ops)
      if (op.kind == OpKind::linear)
        out.push_back({g.prefix + op.module, g.values[static_cast<size_t>(op.in[0])].width,
                       g.values[static_cast<size_t>(op.out[0])].width});
  return out;
}

}  // namespace bantam
