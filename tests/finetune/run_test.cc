// SPDX-License-Identifier: Apache-2.0
// Learning rates, checkpoints and their damage, resume at a step, stopping, generation with a cache.
#include "finetune/train/run.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "finetune/train/generator.h"
#include "model_testing.h"
#include "temp_dir.h"

using namespace bantam;
using namespace bantam::testing;
namespace fs = std::filesystem;

namespace {

struct Setup {
  ModelConfig c = tiny_config();
  std::shared_ptr<const Model> model = tiny_model(c);
  Dataset data{random_samples(c, {13, 7, 21, 2, 30, 9, 17, 5}), {}};
  TrainOptions options;
  Setup() {
    options.batches = {2, 1, 40, true, 5};
    options.num_epochs = 5;
    options.lr.learning_rate = 1e-2;
    options.save_steps = 1;
    options.save_total_limit = 3;
    options.run_key = "a";
  }
  AdapterSet adapters() const { return AdapterSet({.r = 4, .lora_dropout = 0.1}, linear_modules(c), 3); }
  TrainReport run(AdapterSet& a, const TrainHooks& hooks = {}, std::stop_token stop = {}) const {
    Context ctx({.num_threads = 2});
    return train(ctx, model, a, data, &data, options, hooks, std::move(stop));
  }
};

bool same(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

TEST_CASE("learning rate: warm-up and the three shapes, at every edge") {
  const LrOptions cosine{1.0, LrScheduler::cosine, 2};
  CHECK(learning_rate(cosine, 0, 10) == 0.5);
  CHECK(learning_rate(cosine, 1, 10) == 1.0);
  CHECK(learning_rate(cosine, 2, 10) == 1.0);
  CHECK(learning_rate(cosine, 6, 10) == doctest::Approx(0.5));
  CHECK(learning_rate(cosine, 9, 10) > 0);
  const LrOptions linear{2.0, LrScheduler::linear, 0};
  CHECK(learning_rate(linear, 0, 4) == 2.0);
  CHECK(learning_rate(linear, 3, 4) == doctest::Approx(0.5));
  CHECK(learning_rate({3.0, LrScheduler::constant, 1}, 5, 10) == 3.0);
  CHECK(learning_rate({1.0, LrScheduler::cosine, 1}, 0, 1) == 1.0);  // a run of one step
  CHECK(learning_rate({1.0, LrScheduler::cosine, 8}, 3, 4) == 0.5);  // warm-up beyond the end
  CHECK(learning_rate({1.0, LrScheduler::linear, 4}, 3, 4) == 1.0);  // warm-up is the whole run
}

TEST_CASE("a run learns, evaluates at step 0 and at the end, and keeps the newest checkpoints") {
  Setup s;
  const TempDir f;
  s.options.output_dir = f.path();
  AdapterSet a = s.adapters();
  int evals = 0;
  int64_t first_eval = -1, last_eval = -1, steps = 0;
  TrainHooks hooks;
  hooks.on_eval = [&](const EvalEvent& e) {
    if (evals++ == 0) first_eval = e.step;
    last_eval = e.step;
  };
  hooks.on_step = [&](const StepEvent& e) { return steps = e.step, true; };
  const TrainReport r = s.run(a, hooks);
  CHECK(r.finished);
  CHECK(first_eval == 0);
  CHECK(last_eval == r.state.total_steps);
  CHECK(evals == 6);  // step 0 and the end of each of five epochs
  CHECK(steps == r.state.total_steps);
  CHECK(r.last_eval_loss < 0.8 * r.first_eval_loss);
  const auto kept = list_checkpoints(f.path());
  CHECK(kept.size() == 3);
  CHECK(kept.back() == r.state.total_steps);
  CHECK(fs::exists(f.path() / "adapter_model.safetensors"));
}

TEST_CASE("stopped at any step and resumed gives the bits of the unbroken run") {
  Setup s;
  s.options.num_epochs = 8;
  AdapterSet unbroken = s.adapters();
  const int64_t total = s.run(unbroken).state.total_steps;
  REQUIRE(total > 11);
  for (const int64_t at : {int64_t{1}, int64_t{10}, total - 1}) {
    const TempDir f;
    s.options.output_dir = f.path();
    AdapterSet a = s.adapters();
    TrainHooks hooks;
    hooks.on_step = [&](const StepEvent& e) { return e.step != at; };
    const TrainReport r = s.run(a, hooks);
    CHECK_FALSE(r.finished);
    CHECK(r.state.step == at);
    AdapterSet b = s.adapters();
    int64_t resumed = -1;
    TrainHooks second;
    second.on_resume = [&](const RunState& state) { resumed = state.step; };
    CHECK(s.run(b, second).finished);
    CHECK(resumed == at);
    CHECK(same(b.values(), unbroken.values()));
  }
}

TEST_CASE("a stop request gives up the unfinished step and saves the last whole one") {
  Setup s;
  const TempDir f;
  s.options.output_dir = f.path();
  s.options.save_steps = 1000;
  AdapterSet a = s.adapters();
  std::stop_source source;
  TrainHooks hooks;
  hooks.on_step = [&](const StepEvent& e) {
    if (e.step == 4) source.request_stop();
    return true;
  };
  const TrainReport r = s.run(a, hooks, source.get_token());
  CHECK_FALSE(r.finished);
  CHECK(list_checkpoints(f.path()) == std::vector<int64_t>{4});
}

TEST_CASE("a damaged newest checkpoint is named and the one before it is used; only damaged ones are an error") {
  Setup s;
  const TempDir f;
  s.options.output_dir = f.path();
  s.options.max_steps = 4;
  AdapterSet a = s.adapters();
  s.run(a);
  REQUIRE(list_checkpoints(f.path()) == std::vector<int64_t>{2, 3, 4});
  {  // one byte of the moments
    std::fstream file(f.path() / "checkpoint-4" / "optimizer.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  }
  std::vector<std::string> warnings;
  AdapterSet b = s.adapters();
  const auto state = load_newest_checkpoint(f.path(), b, [&](const std::string& m) { warnings.push_back(m); });
  REQUIRE(state);
  CHECK(state->step == 3);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("checkpoint-4") != std::string::npos);
  CHECK(warnings[0].find("optimizer.safetensors") != std::string::npos);
  fs::remove(f.path() / "checkpoint-3" / "manifest.json");
  fs::resize_file(f.path() / "checkpoint-2" / "adapter_model.safetensors", 10);
  CHECK_THROWS_AS(load_newest_checkpoint(f.path(), b, [](const std::string&) {}), Error);
}

TEST_CASE("a checkpoint of another run, or of another length, is refused") {
  Setup s;
  const TempDir f;
  s.options.output_dir = f.path();
  s.options.max_steps = 2;
  AdapterSet a = s.adapters();
  s.run(a);
  s.options.run_key = "b";
  CHECK_THROWS_WITH_AS(s.run(a), doctest::Contains("holds a checkpoint of another run"), Error);
  s.options.run_key = "a";
  s.options.max_steps = 3;
  CHECK_THROWS_WITH_AS(s.run(a), doctest::Contains("run of 2 steps, this one has 3"), Error);
}

TEST_CASE("the last partial window is a step: 5 micro-batches with window 2 are 3 steps, 3 with window 4 are 1") {
  Setup s;
  s.options.batches = {1, 2, 64, false, 1};
  s.options.num_epochs = 1;
  s.data.samples = s.data.samples.subset({0, 1, 2, 3, 4});
  AdapterSet a = s.adapters();
  CHECK(s.run(a).state.total_steps == 3);
  s.data.samples = s.data.samples.subset({0, 1, 2});
  s.options.batches.gradient_accumulation_steps = 4;
  CHECK(s.run(a).state.total_steps == 1);
}

TEST_CASE("weights of datasets: half of the rows each epoch, twice all of them; the plan knows, and resume too") {
  Setup s;
  const TempDir f;
  s.options.num_epochs = 4;
  s.data.source_weights = {0.5};
  const RunPlan half = plan_run(s.data, nullptr, s.options);
  CHECK(half.rows == 4);
  int64_t longest = 0, steps = 0;
  for (int64_t e = 0; e < 4; ++e) {
    const EpochPlan p = plan_epoch(s.data.samples, s.options.batches, e, s.data.source_weights);
    longest = std::max(longest, p.longest_micro_batch);
    steps += p.steps();
  }
  CHECK(half.max_tokens == longest);
  CHECK(half.total_steps == steps);
  AdapterSet unbroken = s.adapters();
  CHECK(s.run(unbroken).tokens == 2 * s.data.samples.tokens());  // four halves
  s.options.output_dir = f.path();
  AdapterSet a = s.adapters(), b = s.adapters();
  TrainHooks hooks;
  hooks.on_step = [&](const StepEvent& e) { return e.step != steps / 2; };
  CHECK_FALSE(s.run(a, hooks).finished);
  CHECK(s.run(b).finished);
  CHECK(same(b.values(), unbroken.values()));
  s.data.source_weights = {2};
  const RunPlan twice = plan_run(s.data, nullptr, s.options);
  CHECK(twice.rows == 16);
  CHECK(twice.tokens_per_epoch == 2 * s.data.samples.tokens());
}

TEST_CASE("a run's shape is that of all its epochs, packed or not") {
  Setup s;
  for (const bool packing : {true, false}) {
    s.options.batches.sample_packing = packing;
    s.options.num_epochs = 2.5;
    const RunPlan r = plan_run(s.data, &s.data, s.options);
    int64_t longest = plan_in_order(s.data.samples, s.options.batches).longest_micro_batch;
    std::vector<int64_t> steps;
    for (int64_t e = 0; e < 3; ++e) {
      const EpochPlan p = plan_epoch(s.data.samples, s.options.batches, e);
      longest = std::max(longest, p.longest_micro_batch);
      steps.push_back(e < 2 ? p.steps() : (p.steps() + 1) / 2);
    }
    CHECK(r.max_tokens == longest);
    CHECK(r.epoch_steps == steps);
    CHECK(r.rows == 8);
  }
}

TEST_CASE("the prediction of memory: nothing is allocated beyond it in the arena, and the plan has every line") {
  Setup s;
  AdapterSet a = s.adapters();
  Context ctx({.num_threads = 1});
  const Trainer t(ctx, s.model, a, s.options.trainer, 64);
  std::vector<std::string> names;
  for (const auto& l : t.plan().lines) names.push_back(l.name);
  CHECK(names == std::vector<std::string>{"weights", "adapters", "gradients", "optimizer state", "saved activations",
                                          "recompute working set", "loss chunk", "workspace", "step constants",
                                          "program, tokenizer, data"});
  CHECK(t.plan().total() > t.plan().anonymous() - 1);
  CHECK(t.plan().lines[1].bytes == static_cast<size_t>(a.size()) * 4);
}

TEST_CASE("a plan over memory_limit stops before step 1 and says what to change first") {
  Setup s;
  s.options.trainer.limit = memory_limit(size_t{1} << 20, 0);
  s.options.trainer.checkpointing.mode = CheckpointMode::off;
  AdapterSet a = s.adapters();
  bool planned = false;
  TrainHooks hooks;
  hooks.on_plan = [&](const RunPlan&, const Trainer&) { planned = true; };
  try {
    s.run(a, hooks);
    FAIL("it ran");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::does_not_fit);
    CHECK(std::string(e.what()).find("more than memory_limit 1.00 MiB") != std::string::npos);
    CHECK(e.hint().starts_with("turn gradient_checkpointing on"));
  }
  CHECK(planned);  // the plan is shown, then refused
  s.options.trainer.limit = memory_limit(size_t{1} << 34, 0);
  CHECK(s.run(a, hooks).finished);
}

TEST_CASE("generation: cache equals the whole sequence, greedy repeats, sampling follows its seed") {
  Setup s;
  AdapterSet a = random_adapters(s.c, {.r = 4});
  Context ctx({.num_threads = 2});
  Generator g(ctx, s.model, &a, DType::bf16, 400);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 300; ++i) prompt.push_back((i * 31 + 7) % 97);  // longer than one chunk
  const Tensor all = g.logits(prompt);
  g.reset();
  const auto last = g.append(prompt);
  CHECK(std::equal(last.begin(), last.end(), all.data<float>() + 299 * 97));
  g.reset();
  const auto x = g.generate({prompt.data(), 5}, {.max_new_tokens = 20});
  CHECK(x.size() == 20);
  g.reset();
  CHECK(g.generate({prompt.data(), 5}, {.max_new_tokens = 20}) == x);
  const GenerateOptions warm{.max_new_tokens = 20, .temperature = 1.5, .top_p = 0.9, .seed = 1};
  g.reset();
  const auto y = g.generate({prompt.data(), 5}, warm);
  g.reset();
  CHECK(g.generate({prompt.data(), 5}, warm) == y);
  CHECK(y != x);
  GenerateOptions stop{.max_new_tokens = 20};
  stop.stop = {x[3]};
  g.reset();
  const auto z = g.generate({prompt.data(), 5}, stop);
  CHECK(z.size() <= 3);
  CHECK_THROWS_AS(g.append(std::vector<int32_t>(500, 1)), Error);
}

TEST_CASE("stories260K: per-token losses of the golden file") {
  const fs::path root = fs::path(BANTAM_SHARED_DATA) / "models";
  if (!fs::exists(root / "tinyllamas-stories-260k-f32.gguf")) {
    MESSAGE("skipped: no shared data");
    return;
  }
  const auto model =
      load_model(root / "tinyllamas-stories-260k-f32.gguf", {.quant = {QuantType::none, false}, .in_memory = true});
  std::ifstream in(root / "stories260K_golden.json");
  const auto golden = nlohmann::json::parse(in);
  AdapterSet adapters({.r = 1}, linear_modules(model->config), 1);  // B is zero: the bare base
  Context ctx({.num_threads = 2});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 512);
  for (const auto& s : golden.at("sequences")) {
    Sample x;
    x.ids = s.at("ids").get<std::vector<int32_t>>();
    x.trained.assign(x.ids.size(), 1);
    x.trained[0] = 0;
    std::vector<float> losses;
    t.evaluate(make_batch(std::vector<Sample>{x}, {0}), &losses);
    const auto want = s.at("nll").get<std::vector<double>>();
    REQUIRE(want.size() + 1 == x.ids.size());
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(static_cast<double>(losses[i]) - want[i]) <= 1e-4);
  }
}
