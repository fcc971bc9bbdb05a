// SPDX-License-Identifier: Apache-2.0
// A family that no model has, to show that nothing but its op list is needed: fan-out, a tied head, a norm with a
// trainable weight, a post-norm that reads down_proj. Gradients against finite differences; recompute equal to the bit.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "finetune/train/executor.h"
#include "model_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

LayerGraph toy_layer(const ModelConfig& c, DType dtype, const AdapterSet* adapters, int layer) {
  GraphBuilder g(c, dtype, adapters, layer);
  Value x = g.input("hidden", c.hidden_size);
  Value n = g.rms_norm(x, "input_layernorm");
  const Value q = g.rope(g.linear(n, "self_attn.q_proj", c.q_size()));
  const Value k = g.rope(g.linear(n, "self_attn.k_proj", c.kv_size()));
  const Value v = g.linear(n, "self_attn.v_proj", c.kv_size());
  x = g.add_linear(n, g.attention(q, k, v), "self_attn.o_proj", c.hidden_size);  // the residual is the normalised value
  const Value gate = g.linear(x, "mlp.gate_proj", c.intermediate_size);
  const Value up = g.linear(n, "mlp.up_proj", c.intermediate_size);  // n again: five readers
  const Value down = g.linear(g.gated_act(gate, up, Act::gelu_tanh), "mlp.down_proj", c.hidden_size);
  return g.output(g.add(x, g.rms_norm(down, "post_feedforward_layernorm"), "residual"));
}

ModelGraph toy_graph(const ModelConfig& c, DType dtype, const AdapterSet* adapters) {
  ModelGraph m = build_model_graph(c, dtype, adapters);  // embedding and tail are Llama's, the head is tied
  for (int l = 0; l < c.num_hidden_layers; ++l) m.stages[static_cast<size_t>(l) + 1] = toy_layer(c, dtype, adapters, l);
  return m;
}

struct Toy {
  ModelConfig c = tiny_config(true);
  std::shared_ptr<const WeightStore> store;
  std::optional<AdapterSet> adapters;
  std::vector<Sample> samples;
  Batch batch;
  Context ctx{{.num_threads = 2}};

  explicit Toy(double dropout) {
    c.num_hidden_layers = 2;
    const ModelGraph bare = toy_graph(c, DType::f32, nullptr);
    const auto weights = random_weights(c, bare, 2);
    store = WeightStore::in_memory(*memory_source(weights), {QuantType::none, true});
    std::vector<AdapterSet::Module> modules;
    for (const auto& m : linear_modules(c))
      if (m.path.starts_with("model.layers.0.") || m.path.starts_with("model.layers.1.")) modules.push_back(m);
    std::vector<AdapterSet::Extra> extra;
    for (const char* name :
         {"model.layers.0.input_layernorm.weight", "model.layers.1.post_feedforward_layernorm.weight"})
      extra.push_back({name, 1, c.hidden_size, weights.at(name).values});
    adapters.emplace(LoraConfig{.r = 3, .lora_alpha = 6, .lora_dropout = dropout}, modules, 5, extra);
    std::mt19937 rng(9);
    for (const auto& a : adapters->adapters()) {
      const Parameter& p = adapters->parameters()[static_cast<size_t>(a.b)];
      const auto v = random_values(p.size(), 0.2, rng);
      std::copy(v.begin(), v.end(), adapters->values().begin() + p.offset);
    }
    samples = random_samples(c, {11, 6, 17});
    batch = make_batch(samples, {0, 1, 2});
  }

  double run(DType dtype, const CheckpointPolicy& policy, bool poison = true) {
    const ModelGraph g = toy_graph(c, dtype, &*adapters);
    const Program p = compile(g, training_schedule(g, policy), {.max_tokens = batch.tokens()});
    CHECK(static_cast<double>(p.peak) <= 1.03 * static_cast<double>(p.live_peak));
    Tensor arena(DType::u8, 1, static_cast<int64_t>(p.peak));
    StepBuffers buffers(ctx.backend(), c, batch.tokens());
    Executor e(ctx, g, store, arena.view().data, p.peak);
    adapters->zero_grads();
    e.run(p, buffers.fill(batch, 1.0 / batch.total_weight(), 3, 0, true),
          {.adapters = &*adapters, .poison_dead = poison});
    double sum = 0;
    const auto losses = e.losses(p, batch.tokens());
    for (size_t t = 0; t < losses.size(); ++t)
      sum += static_cast<double>(batch.weights[t]) * static_cast<double>(losses[t]);
    return sum / batch.total_weight();
  }
  std::vector<float> grads() const { return {adapters->grads().begin(), adapters->grads().end()}; }
};

}  // namespace

TEST_CASE("toy family: gradients agree with finite differences, for each parameter") {
  for (const double dropout : {0.0, 0.2}) {
    Toy toy(dropout);
    toy.run(DType::f32, {CheckpointMode::full, {}});
    const std::vector<float> g = toy.grads(), start(toy.adapters->values().begin(), toy.adapters->values().end());
    std::mt19937 rng(4);
    for (const Parameter& p : toy.adapters->parameters()) {
      CAPTURE(p.name);
      // The direction of the gradient, plus noise: a derivative well above rounding.
      double norm = 0;
      for (int64_t i = 0; i < p.size(); ++i)
        norm += std::pow(static_cast<double>(g[static_cast<size_t>(p.offset + i)]), 2);
      norm = std::sqrt(norm);
      REQUIRE(norm > 0);
      std::vector<double> d(static_cast<size_t>(p.size()));
      double expected = 0, length = 0;
      for (int64_t i = 0; i < p.size(); ++i) {
        const double gi = static_cast<double>(g[static_cast<size_t>(p.offset + i)]);
        const double noise =
            (static_cast<double>(rng()) / 4294967296.0 - 0.5) * norm / std::sqrt(static_cast<double>(p.size()));
        d[static_cast<size_t>(i)] = gi + noise;
        length += d[static_cast<size_t>(i)] * d[static_cast<size_t>(i)];
      }
      length = std::sqrt(length);
      for (int64_t i = 0; i < p.size(); ++i)
        expected += d[static_cast<size_t>(i)] / length * static_cast<double>(g[static_cast<size_t>(p.offset + i)]);
      const double h = 1e-2;
      const auto at = [&](double step) {
        for (int64_t i = 0; i < p.size(); ++i) {
          const auto k = static_cast<size_t>(p.offset + i);
          toy.adapters->values()[k] =
              static_cast<float>(static_cast<double>(start[k]) + step * d[static_cast<size_t>(i)] / length);
        }
        return toy.run(DType::f32, {CheckpointMode::off, {}}, false);
      };
      // Fourth-order difference: truncation below 1e-6 here, so rounding of the f32 losses (about 1e-7 / h) is what is
      // left.
      const double found = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      at(0);
      CHECK(found == doctest::Approx(expected).epsilon(5e-3).scale(1e-2));
    }
  }
}

TEST_CASE("toy family: every schedule gives the same bits, and down_proj is run again because the post-norm reads it") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Toy toy(0.1);
    const double loss = toy.run(dtype, {CheckpointMode::off, {}});
    const auto g = toy.grads();
    for (const CheckpointPolicy& policy :
         {CheckpointPolicy{CheckpointMode::full, {}}, CheckpointPolicy{CheckpointMode::selective, {}},
          CheckpointPolicy{CheckpointMode::selective, {"mlp.down_proj", "attention"}}}) {
      CHECK(toy.run(dtype, policy) == loss);
      CHECK(toy.grads() == g);
    }
  }
  Toy toy(0);
  const ModelGraph g = toy_graph(toy.c, DType::f32, &*toy.adapters);
  bool again = false;
  for (const Instr& n : compile(g, training_schedule(g, {CheckpointMode::full, {}}), {.max_tokens = 8}).instrs)
    again = again || (n.recompute &&
                      g.stages[static_cast<size_t>(n.stage)].ops[static_cast<size_t>(n.op)].module == "mlp.down_proj");
  CHECK(again);
}
