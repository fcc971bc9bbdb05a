// SPDX-License-Identifier: Apache-2.0
// Small random models and batches for tests.
#pragma once
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/model/model.h"
#include "lora/adapter_set.h"

namespace bantam::testing {

inline std::vector<float> random_values(int64_t n, double scale, std::mt19937& rng) {
  std::vector<float> v(static_cast<size_t>(n));
  for (auto& x : v) x = static_cast<float>((static_cast<double>(rng()) / 2147483648.0 - 1.0) * scale);
  return v;
}

inline ModelConfig tiny_config(bool tied = true) {
  ModelConfig c;
  c.model_type = "llama";
  c.vocab_size = 97;
  c.hidden_size = 32;
  c.intermediate_size = 56;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 8;
  c.max_position_embeddings = 2048;
  c.tie_word_embeddings = tied;
  return c;
}

/// The shape of SmolLM2-135M.
inline ModelConfig smollm2_135m() {
  ModelConfig c = tiny_config();
  c.vocab_size = 49152;
  c.hidden_size = 576;
  c.intermediate_size = 1536;
  c.num_hidden_layers = 30;
  c.num_attention_heads = 9;
  c.num_key_value_heads = 3;
  c.head_dim = 64;
  c.rope_theta = 100000;
  return c;
}

/// Random weights for every tensor that the graph's stages read.
inline std::map<std::string, MemoryTensor> random_weights(const ModelConfig& c, const ModelGraph& graph,
                                                          unsigned seed) {
  std::mt19937 rng(seed);
  std::map<std::string, MemoryTensor> t;
  for (const LayerGraph& g : graph.stages)
    for (const Op& op : g.ops) {
      const auto width = [&](int v) { return g.values[static_cast<size_t>(v)].width; };
      const std::string name = g.prefix + op.module + ".weight";
      if (t.contains(name)) continue;
      if (op.kind == OpKind::embedding || op.kind == OpKind::cross_entropy)
        t[name] = {{c.vocab_size, c.hidden_size}, random_values(c.vocab_size * c.hidden_size, 0.5, rng)};
      if (op.kind == OpKind::rms_norm) {
        t[name] = {{width(op.in[0])}, random_values(width(op.in[0]), 0.2, rng)};
        for (auto& x : t[name].values) x += 1;
      }
      if (op.kind == OpKind::linear) {
        const int64_t in = width(op.in[0]), out = width(op.out[0]);
        t[name] = {{out, in}, random_values(in * out, 1.5 / std::sqrt(static_cast<double>(in)), rng)};
      }
    }
  return t;
}

inline std::shared_ptr<Model> tiny_model(const ModelConfig& c, QuantType type = QuantType::nf4, unsigned seed = 1) {
  auto m = std::make_shared<Model>();
  m->config = c;
  m->quant = {type, true};
  m->store = WeightStore::in_memory(*memory_source(random_weights(c, build_model_graph(c, DType::f32, nullptr), seed)),
                                    m->quant);
  return m;
}

/// Adapters on all linears with A and B random, so that every gradient is alive.
inline AdapterSet random_adapters(const ModelConfig& c, const LoraConfig& lora, uint64_t seed = 7) {
  AdapterSet a(lora, linear_modules(c), seed);
  std::mt19937 rng(static_cast<unsigned>(seed));
  for (const auto& x : a.adapters()) {
    const Parameter& p = a.parameters()[static_cast<size_t>(x.b)];
    const auto v = random_values(p.size(), 0.1, rng);
    std::copy(v.begin(), v.end(), a.values().begin() + p.offset);
  }
  return a;
}

inline std::vector<Sample> random_samples(const ModelConfig& c, const std::vector<int>& lengths, unsigned seed = 3) {
  std::mt19937 rng(seed);
  std::vector<Sample> out;
  for (size_t s = 0; s < lengths.size(); ++s) {
    Sample x;
    x.id = 1000 + s;
    for (int i = 0; i < lengths[s]; ++i) {
      x.ids.push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(c.vocab_size)));
      x.trained.push_back(i > lengths[s] / 3);
    }
    x.trained[0] = 0;
    out.push_back(std::move(x));
  }
  return out;
}

inline std::vector<int32_t> all_of(const std::vector<Sample>& s) {
  std::vector<int32_t> v;
  for (size_t i = 0; i < s.size(); ++i) v.push_back(static_cast<int32_t>(i));
  return v;
}

}  // namespace bantam::testing
