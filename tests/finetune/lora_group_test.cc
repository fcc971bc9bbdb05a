// SPDX-License-Identifier: Apache-2.0
// LoRA of linears that read the same input: one product with their stacked lora_A. It is the same mathematics as one
// product each, which is what an adapter set in another order gets.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "finetune/train/run_state.h"
#include "finetune/train/trainer.h"
#include "kernels/error.h"
#include "model_testing.h"
#include "quant/safetensors.h"
#include "temp_dir.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

// The lora_downs of the first layer: "q_proj+k_proj+v_proj:12" for a z of width 12.
std::vector<std::string> downs(const ModelConfig& c, const AdapterSet& adapters) {
  const LayerGraph g = llama_layer(c, DType::f32, &adapters, 0);
  const auto leaf = [](const std::string& m) { return m.substr(m.rfind('.') + 1); };
  std::vector<std::string> out;
  for (const Op& op : g.ops) {
    if (op.kind != OpKind::lora_down) continue;
    std::string s;
    for (const std::string& m : op.group) s += (s.empty() ? "" : "+") + leaf(m);
    if (op.group.empty()) s = leaf(op.module);
    out.push_back(s + ":" + std::to_string(g.values[static_cast<size_t>(op.out[0])].width));
  }
  return out;
}

std::vector<AdapterSet::Module> modules(const ModelConfig& c, const std::vector<std::string>& targets) {
  std::vector<AdapterSet::Module> out;
  for (const auto& m : linear_modules(c))
    if (std::any_of(targets.begin(), targets.end(), [&](const std::string& t) { return m.path.ends_with(t); }))
      out.push_back(m);
  return out;
}

// In an order in which no two lora_A are stacked.
std::vector<AdapterSet::Module> reversed(std::vector<AdapterSet::Module> m) {
  std::reverse(m.begin(), m.end());
  return m;
}

// Values of a matrix by its name, whatever the order of the set.
std::span<float> part(std::span<float> flat, const AdapterSet& a, const std::string& name) {
  const Parameter& p = a.parameters()[static_cast<size_t>(a.find_parameter(name))];
  return flat.subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.size()));
}

void copy_by_name(std::span<float> to_flat, const AdapterSet& to, std::span<float> from_flat, const AdapterSet& from) {
  for (const Parameter& p : from.parameters()) {
    const auto v = part(from_flat, from, p.name);
    std::copy(v.begin(), v.end(), part(to_flat, to, p.name).begin());
  }
}

}  // namespace

TEST_CASE("q, k, v and gate, up share a product each, as far as they have adapters and their lora_A are stacked") {
  const ModelConfig c = tiny_config();
  using List = std::vector<std::string>;
  const auto of = [&](const std::vector<AdapterSet::Module>& m, double dropout = 0) {
    return downs(c, AdapterSet({.r = 4, .lora_dropout = dropout}, m, 1));
  };
  CHECK(of(linear_modules(c)) == List{"q_proj+k_proj+v_proj:12", "o_proj:4", "gate_proj+up_proj:8", "down_proj:4"});
  CHECK(of(modules(c, {"q_proj", "v_proj"})) == List{"q_proj+v_proj:8"});
  CHECK(of(modules(c, {"k_proj", "up_proj"})) == List{"k_proj:4", "up_proj:4"});
  const List alone = {"q_proj:4", "k_proj:4", "v_proj:4", "o_proj:4", "gate_proj:4", "up_proj:4", "down_proj:4"};
  CHECK(of(reversed(linear_modules(c))) == alone);
  CHECK(of(linear_modules(c), 0.1) == alone);  // each has a mask of its own
  CHECK(downs(c, AdapterSet::shapes({.r = 4}, linear_modules(c))) ==
        List{"q_proj+k_proj+v_proj:12", "o_proj:4", "gate_proj+up_proj:8", "down_proj:4"});
}

namespace {

// Relative distance of the gradients of every matrix of `a` to those that `b` has of it; infinite where one is zero.
double worst_distance(AdapterSet& a, AdapterSet& b) {
  double worst = 0;
  for (const Parameter& p : a.parameters()) {
    const auto g = part(a.grads(), a, p.name), h = part(b.grads(), b, p.name);
    double diff = 0, size = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      diff += std::pow(static_cast<double>(g[i]) - static_cast<double>(h[i]), 2);
      size += std::pow(static_cast<double>(h[i]), 2);
    }
    worst = std::max(worst, size > 0 ? std::sqrt(diff / size) : INFINITY);
  }
  return worst;
}

struct Fixture {
  ModelConfig c = tiny_config();
  std::shared_ptr<Model> model = tiny_model(c);
  StepBatch batch = make_step(random_samples(c, {13, 7, 21}), {{0, 1, 2}});
  Context ctx{{.num_threads = 2}};

  double loss(AdapterSet& a) {
    Trainer t(ctx, model, a, {.dtype = DType::f32}, 64);
    return t.accumulate(batch.micro[0], 1 / batch.total_weight, 0);
  }
};

}  // namespace

TEST_CASE("the gradients of a group are those of its linears alone, within rounding; the losses are equal") {
  Fixture f;
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"_proj"}, {"q_proj", "v_proj", "up_proj", "gate_proj"}})
    for (const int64_t r : {1, 4, 19}) {
      CAPTURE(r);
      const LoraConfig lora{.r = r, .lora_alpha = 8};
      AdapterSet grouped(lora, modules(f.c, targets), 7), alone(lora, reversed(modules(f.c, targets)), 7);
      std::mt19937 rng(3);
      const auto values = random_values(grouped.size(), 0.1, rng);
      std::copy(values.begin(), values.end(), grouped.values().begin());
      copy_by_name(alone.values(), alone, grouped.values(), grouped);
      CHECK(f.loss(grouped) == f.loss(alone));
      CHECK(worst_distance(grouped, alone) < 2e-6);
    }
}

// Where lora_B is zero an adapter changes nothing, so training without it gives the gradients of training with it.
TEST_CASE("any set of target modules can be trained, and has the gradients that it has among all") {
  Fixture f;
  const std::vector<std::string> names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  for (const double dropout : {0.0, 0.1})
    for (unsigned mask = 1; mask < 1u << names.size(); ++mask) {
      std::vector<std::string> targets;
      for (size_t i = 0; i < names.size(); ++i)
        if (mask >> i & 1) targets.push_back(names[i]);
      CAPTURE(mask);
      const LoraConfig lora{.r = 3, .lora_alpha = 8, .lora_dropout = dropout};
      AdapterSet some(lora, modules(f.c, targets), 7), all(lora, linear_modules(f.c), 7);
      std::mt19937 rng(mask);
      const auto values = random_values(some.size(), 0.1, rng);
      std::copy(values.begin(), values.end(), some.values().begin());
      copy_by_name(all.values(), all, some.values(), some);
      double loss = 0;
      REQUIRE_NOTHROW(loss = f.loss(some));
      if (dropout == 0) {  // masks go by the number of a layer's site, which the others shift
        CHECK(loss == f.loss(all));
        CHECK(worst_distance(some, all) < 5e-6);
      }
    }
}

TEST_CASE("a checkpoint names its moments: a set in another order reads the same ones") {
  const ModelConfig c = tiny_config();
  const TempDir f;
  AdapterSet a({.r = 4}, linear_modules(c), 1), b({.r = 4}, reversed(linear_modules(c)), 2);
  for (size_t i = 0; i < a.values().size(); ++i) {
    a.values()[i] = static_cast<float>(i);
    a.exp_avg()[i] = static_cast<float>(i) + 0.25f;
    a.exp_avg_sq()[i] = static_cast<float>(i) + 0.5f;
  }
  std::vector<std::string> paths;
  for (const auto& m : linear_modules(c)) paths.push_back(m.path);
  const auto folder = save_checkpoint(f.path(), a, RunState{.step = 1}, paths, "base");
  load_checkpoint(folder, b);
  for (const Parameter& p : a.parameters()) {
    CAPTURE(p.name);
    const auto equal = [&](std::span<float> x, std::span<float> y) {
      return std::equal(x.begin(), x.end(), y.begin());
    };
    CHECK(equal(part(a.values(), a, p.name), part(b.values(), b, p.name)));
    CHECK(equal(part(a.exp_avg(), a, p.name), part(b.exp_avg(), b, p.name)));
    CHECK(equal(part(a.exp_avg_sq(), a, p.name), part(b.exp_avg_sq(), b, p.name)));
  }
}

TEST_CASE("a checkpoint whose moments lie in one flat array, as before they had names, is refused in words") {
  const ModelConfig c = tiny_config();
  const TempDir f;
  AdapterSet a({.r = 4}, linear_modules(c), 1);
  std::vector<std::string> paths;
  for (const auto& m : linear_modules(c)) paths.push_back(m.path);
  const auto folder = save_checkpoint(f.path(), a, RunState{.step = 1}, paths, "base");
  SafetensorsWriter flat(folder / "optimizer.safetensors",
                         {{"exp_avg", "F32", {a.size()}}, {"exp_avg_sq", "F32", {a.size()}}});
  flat.write(0, 0, a.exp_avg());
  flat.write(1, 0, a.exp_avg_sq());
  flat.finish();
  // The list of hashes without that file's.
  auto manifest = nlohmann::json::parse(std::ifstream(folder / "manifest.json"));
  manifest["files"].erase("optimizer.safetensors");
  std::ofstream(folder / "manifest.json") << manifest;
  CHECK_THROWS_WITH_AS(
      load_checkpoint(folder, a),
      doctest::Contains("found nothing, expected exp_avg.model.layers.0.self_attn.q_proj.lora_A.weight F32"), Error);
}
