// SPDX-License-Identifier: Apache-2.0
// A small llama as a source, the same in golden/check_store.py.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "quant/tensor_source.h"
#include "quant_testing.h"

namespace bantam::testing {

inline constexpr const char* kTinyConfig =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
 "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false, "dtype": "float32",
 "bos_token_id": 1, "eos_token_id": 2})";

/// Seeds count up in the order of names; norms are 1 + a small value.
inline std::map<std::string, MemoryTensor> tiny_llama() {
  std::map<std::string, std::vector<int64_t>> shapes = {
      {"model.embed_tokens.weight", {40, 64}}, {"model.norm.weight", {64}}, {"lm_head.weight", {40, 64}}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = str("model.layers.", layer, ".");
    shapes[p + "input_layernorm.weight"] = {64};
    shapes[p + "post_attention_layernorm.weight"] = {64};
    shapes[p + "self_attn.q_proj.weight"] = {64, 64};
    shapes[p + "self_attn.k_proj.weight"] = {32, 64};
    shapes[p + "self_attn.v_proj.weight"] = {32, 64};
    shapes[p + "self_attn.o_proj.weight"] = {64, 64};
    shapes[p + "mlp.gate_proj.weight"] = {96, 64};
    shapes[p + "mlp.up_proj.weight"] = {96, 64};
    shapes[p + "mlp.down_proj.weight"] = {64, 96};
  }
  std::map<std::string, MemoryTensor> out;
  uint32_t seed = 100;
  for (const auto& [name, shape] : shapes) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    auto values = reference_values(n, seed++, 0.05f);
    if (shape.size() == 1)
      for (float& v : values) v += 1.0f;
    out[name] = {shape, std::move(values)};
  }
  return out;
}

}  // namespace bantam::testing
