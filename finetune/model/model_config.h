// SPDX-License-Identifier: Apache-2.0
// What a model is, from config.json or GGUF metadata.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// Llama-3's stretching of low rope frequencies; `factor` 1 means none.
struct RopeScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  std::string model_type;  ///< "llama"
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-5, rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool attention_bias = false, mlp_bias = false;
  std::string name;     ///< for messages and adapter_config.json: _name_or_path, general.name; may be empty
  std::string hf_base;  ///< hub id, where the file knows it

  int64_t q_size() const { return num_attention_heads * head_dim; }
  int64_t kv_size() const { return num_key_value_heads * head_dim; }
  /// rope's inverse frequencies, [head_dim / 2], scaling applied.
  std::vector<double> rope_inv_freq() const;
  /// Error(model) with key, found and expected when a size is impossible.
  void check(const std::string& where) const;
  /// As a config.json that transformers reads.
  std::string to_json() const;
};

/// `json`: text of a config.json; `where`: its path, for messages. Unknown model types and features that would change
/// the numbers (sliding windows, other activations) are refused with their name.
ModelConfig parse_model_config(std::string_view json, const std::string& where);
/// A model folder or a .gguf file.
ModelConfig load_model_config(const std::filesystem::path& model);

}  // namespace bantam
