// SPDX-License-Identifier: Apache-2.0
// Schedules on real programs: any legal one gives the same numbers, auto keeps to its budget, the chain that the
// planner solves agrees with what the compiler builds, and a written schedule is read back.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "finetune/recompute/chain_planner.h"
#include "finetune/recompute/schedule_planner.h"
#include "finetune/recompute/schedule_text.h"
#include "finetune/train/trainer.h"
#include "model_testing.h"
#include "schedule_testing.h"
#include "trace_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

ModelConfig deep_config() {
  ModelConfig c = tiny_config();
  c.num_hidden_layers = 6;
  return c;
}

Trace run(const ModelConfig& c, const std::shared_ptr<const Model>& model, const TrainerOptions& options,
          Program* program = nullptr, double dropout = 0.1) {
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = dropout});
  const auto samples = random_samples(c, {13, 7, 21, 2, 30, 9});
  Context ctx({.num_threads = 2});
  Trainer t(ctx, model, adapters, options, 64);
  Trace trace;
  for (int k = 0; k < 3; ++k) {
    const StepBatch batch = make_step(samples, {{k % 6, (k + 1) % 6}, {(k + 2) % 6}});
    const StepResult r = t.train_step(batch, k, 1e-3, static_cast<uint64_t>(k / 3));
    trace.add(r);
  }
  trace.finish(t);
  if (program) *program = t.program();
  return trace;
}

ModelConfig llama_8b() {
  ModelConfig c = tiny_config(false);
  c.vocab_size = 128256;
  c.hidden_size = 4096;
  c.intermediate_size = 14336;
  c.num_hidden_layers = 32;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  return c;
}

}  // namespace

TEST_CASE("any legal schedule gives equal losses, gradients and adapters, dropout included") {
  const ModelConfig c = deep_config();
  const auto model = tiny_model(c);
  for (const auto& [dtype, dropout] :
       {std::pair{DType::bf16, 0.1}, {DType::f32, 0.1}, {DType::bf16, 0.0}, {DType::f32, 0.0}}) {
    TrainerOptions o{.dtype = dtype, .checkpointing = {CheckpointMode::off, {}}, .poison_dead = true};
    const auto trace = [&, dropout = dropout] { return run(c, model, o, nullptr, dropout); };
    const Trace base = trace();
    REQUIRE(base.losses[0] > 0);
    const AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = dropout});
    const ModelGraph g = build_model_graph(c, dtype, &adapters);
    for (unsigned seed = 0; seed < 13; ++seed) {
      CAPTURE(seed);
      o.schedule = RandomSchedule(g, seed).draw();
      CHECK(trace() == base);
    }
    o.schedule.reset();
    for (const CheckpointPolicy& p :
         {CheckpointPolicy{CheckpointMode::sqrt, {}}, CheckpointPolicy{CheckpointMode::every_n, {}, 1},
          CheckpointPolicy{CheckpointMode::every_n, {}, 4}, CheckpointPolicy{CheckpointMode::every_n, {}, 100}}) {
      o.checkpointing = p;
      CHECK(trace() == base);
    }
  }
}

TEST_CASE("auto: the arena keeps to every budget, and the numbers stay") {
  const ModelConfig c = deep_config();
  const auto model = tiny_model(c);
  TrainerOptions o{
      .dtype = DType::bf16, .checkpointing = {CheckpointMode::off, {}}, .loss_chunk_bytes = 4096, .poison_dead = true};
  Program everything;
  const Trace base = run(c, model, o, &everything);
  o.checkpointing.mode = CheckpointMode::automatic;
  Program p;
  CHECK(run(c, model, o, &p) == base);
  CHECK(p.recompute_flops == 0);  // memory to spare
  CHECK(p.peak == everything.peak);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = 0.1});
  Context ctx({.num_threads = 2});
  o.limit = memory_limit(size_t{1} << 40, 0);
  o.program_bytes = size_t{16} << 20;
  const size_t others = [&] {
    const Trainer t(ctx, model, adapters, o, 64);
    return t.plan().total() - t.training_plan().arena();
  }();
  size_t before = everything.peak + 1;
  for (const double share : {0.9, 0.75, 0.5, 0.35}) {
    const auto budget = static_cast<size_t>(share * static_cast<double>(everything.peak));
    o.limit = memory_limit(others + budget, 0);
    CAPTURE(share);
    const Trainer t(ctx, model, adapters, o, 64);
    CHECK(t.plan().fits());
    CHECK(t.training_plan().arena() <= budget);
    CHECK(t.training_plan().arena() < before);
    before = t.training_plan().arena();
    CHECK(run(c, model, o, &p) == base);
    CHECK(p.peak <= budget);
  }
}

TEST_CASE("the chain that is planned is what the compiler builds") {
  ModelConfig c = smollm2_135m();
  for (const double dropout : {0.0, 0.1}) {
    const AdapterSet adapters({.r = 16, .lora_dropout = dropout}, linear_modules(c), 1);
    const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
    const CostModel costs = CostModel::assume(3e11);
    const ProgramOptions options{.max_tokens = 512, .loss_chunk_bytes = size_t{16} << 20};
    const SchedulePlanner planner(g, costs, options);
    const ChainModel& m = planner.chain();
    const size_t most = planner.fixed({CheckpointMode::off, {}}).program.peak;
    for (const double share : {1.0, 0.6, 0.3, 0.15, 0.08}) {
      const auto budget = static_cast<size_t>(share * static_cast<double>(most));
      const auto plan = ChainPlanner(m.chain, budget).plan(budget);
      REQUIRE(plan);
      const PlannedSchedule p = planner.of(schedule_of(g, m, plan->ops, "test"));
      // The program reuses buffers in place, which the chain does not count: it is smaller, by part of one layer.
      CAPTURE(share);
      CHECK(p.program.live_peak <= plan->peak + m.outside);
      CHECK(static_cast<double>(p.program.live_peak) >= 0.9 * static_cast<double>(plan->peak) - 8e6);
      // An input that only passes through a segment costs no trip to memory; the chain takes every input to do.
      CHECK(p.cost.total() == doctest::Approx(plan->seconds + m.seconds_below).epsilon(0.01));
    }
  }
}

TEST_CASE("with inputs in host memory too, and auto is faster with them or does without") {
  ModelConfig c = smollm2_135m();
  c.num_hidden_layers = 10;
  const AdapterSet adapters({.r = 16, .lora_dropout = 0.1}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  const ProgramOptions options{.max_tokens = 512, .loss_chunk_bytes = size_t{2} << 20};
  const size_t input = size_t{512} * 576 * 2;
  for (const double copies : {0.3, 1.0, 4.0}) {  // hidden by the ops; by backwards only; by nothing
    CostModel costs = CostModel::assume(3e11);
    for (const char* way : {CostModel::kCopyOut, CostModel::kCopyIn})
      costs.set(way, copies * CostModel::kFlopsPerHostByte / 3e11);
    const SchedulePlanner planner(g, costs, options, {true, 7 * input}), without(g, costs, options);
    const ChainModel& m = planner.offload_chain();
    const size_t most = planner.fixed({CheckpointMode::off, {}}).program.peak;
    int offloaded = 0, here = 0;
    for (const double share : {1.0, 0.5, 0.25, 0.15}) {
      const auto budget = static_cast<size_t>(share * static_cast<double>(most));
      CAPTURE(share);
      CAPTURE(copies);
      const auto plan = ChainPlanner(m.chain, budget).plan(budget);
      REQUIRE(plan);
      const PlannedSchedule p = planner.of(schedule_of(g, m, plan->ops, "test"));
      CHECK(p.program.live_peak <= plan->peak + m.outside);
      CHECK(static_cast<double>(p.program.live_peak) >= 0.9 * static_cast<double>(plan->peak) - 8e6);
      CHECK(p.cost.total() == doctest::Approx(plan->seconds + m.seconds_below).epsilon(0.01));
      CHECK(p.program.host_peak <= 7 * input);
      const auto a = planner.automatic(budget), b = without.automatic(budget);
      REQUIRE(a);
      CHECK(a->program.peak <= budget);
      CHECK(a->program.host_peak <= 7 * input);
      if (b) CHECK(a->cost.total() <= b->cost.total());
      const int n = offloaded_inputs(a->schedule);
      if (n > 0 && b) CHECK(a->cost.total() < b->cost.total());
      (n > 0 ? offloaded : here) += 1;
      CHECK((n > 0) == (a->program.host_peak > 0));
    }
    CHECK(here > 0);
    if (copies < 1) CHECK(offloaded > 2);
  }
}

TEST_CASE("auto uses the budget, is never slower than a simple policy that fits, and is faster with more") {
  const ModelConfig c = smollm2_135m();
  const AdapterSet adapters({.r = 16}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  const SchedulePlanner planner(g, CostModel::assume(3e11), {.max_tokens = 1024, .loss_chunk_bytes = size_t{16} << 20});
  std::vector<PlannedSchedule> simple;
  for (const auto mode : {CheckpointMode::off, CheckpointMode::selective, CheckpointMode::full, CheckpointMode::sqrt})
    simple.push_back(planner.fixed({mode, {}}));
  double before = 1e9;
  for (double share = 0.08; share <= 1.01; share += 0.04) {
    const auto budget = static_cast<size_t>(share * static_cast<double>(simple[0].program.peak));
    const auto p = planner.automatic(budget);
    REQUIRE(p);
    CAPTURE(share);
    CHECK(p->program.peak <= budget);
    for (const auto& s : simple)
      if (s.program.peak <= budget) CHECK(p->cost.total() <= s.cost.total() * (1 + 1e-9));
    CHECK(p->cost.total() <= before * 1.003);  // the search around the limit is not exact
    before = p->cost.total();
    if (share < 0.6) CHECK(static_cast<double>(p->program.peak) >= 0.95 * static_cast<double>(budget));
  }
  CHECK(planner.automatic(simple[0].program.peak)->cost.recompute == 0);
  CHECK_FALSE(planner.automatic(size_t{1} << 20));
}

TEST_CASE("auto finds a schedule for every budget above what true takes, in deep models too") {
  ModelConfig c = tiny_config();
  c.hidden_size = 256, c.intermediate_size = 768, c.num_attention_heads = 4, c.head_dim = 64;
  c.num_hidden_layers = 250;
  const AdapterSet shapes = AdapterSet::shapes({.r = 16}, linear_modules(c));
  const ModelGraph g = build_model_graph(c, DType::bf16, &shapes);
  const SchedulePlanner planner(g, CostModel::assume(3e11), {.max_tokens = 512, .loss_chunk_bytes = size_t{16} << 20});
  const size_t none = planner.fixed({CheckpointMode::off, {}}).program.peak;
  const size_t full = planner.fixed({CheckpointMode::full, {}}).program.peak;
  for (int k = 0; k < 12; ++k) {
    const size_t budget = full + (none - full) / 13 * static_cast<size_t>(k) + 12345 * static_cast<size_t>(k);
    CAPTURE(k);
    const auto p = planner.automatic(budget);
    REQUIRE(p);
    CHECK(p->program.peak <= budget);
    CHECK(static_cast<double>(p->program.peak) >= 0.97 * static_cast<double>(budget));
  }
}

TEST_CASE("saved sets: a front that starts small and ends with nothing to rebuild, down_proj's output in none") {
  const ModelConfig c = smollm2_135m();
  const AdapterSet adapters({.r = 16, .lora_dropout = 0.05}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  const auto analysis = analyse(g);
  const LayerGraph& layer = g.stages[2];
  const auto sets = saved_sets(c, layer, analysis[2], CostModel::assume(3e11), 1024);
  REQUIRE(sets.size() >= 5);
  REQUIRE(sets.size() <= kMostOptions);
  for (const SavedSet& s : sets) {
    CHECK(s[static_cast<size_t>(layer.input)]);
    CHECK_FALSE(s[static_cast<size_t>(layer.output)]);
  }
  CHECK(sets.back() == keep_all(layer, analysis[2]));
}

TEST_CASE("plans are quick: 40 layers in a tenth of a second, a thousand layers in a few seconds") {
  for (const int layers : {40, 1000}) {
    ModelConfig c = smollm2_135m();
    c.num_hidden_layers = layers;
    const AdapterSet adapters({.r = 16}, linear_modules(c), 1);
    const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
    const auto t0 = std::chrono::steady_clock::now();
    const SchedulePlanner planner(g, CostModel::assume(3e11),
                                  {.max_tokens = 512, .loss_chunk_bytes = size_t{16} << 20});
    const auto budget = size_t{2 * 1024 * 1024} * static_cast<size_t>(layers);
    const ChainPlanner chain(planner.chain().chain, budget);
    const auto plan = chain.plan(budget);
    MESSAGE(layers << " layers: " << std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count()
                   << " s");
    REQUIRE(plan);
    const PlannedSchedule p = planner.of(schedule_of(g, planner.chain(), plan->ops, "test"));
    CHECK(static_cast<double>(p.program.peak) <= 1.03 * static_cast<double>(p.program.live_peak));
  }
}

TEST_CASE("a schedule is read back as it was written; one of another model is not") {
  const ModelConfig c = deep_config();
  const AdapterSet adapters = random_adapters(c, {.r = 4, .lora_dropout = 0.1});
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  int offloaded = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Schedule s = RandomSchedule(g, seed, seed >= 10).draw();
    offloaded += offloaded_inputs(s);
    const auto back = schedule_from_json(g, schedule_to_json(g, s));
    REQUIRE(back);
    CHECK(back->name == s.name);
    REQUIRE(back->actions.size() == s.actions.size());
    for (size_t i = 0; i < s.actions.size(); ++i) {
      CHECK(back->actions[i].kind == s.actions[i].kind);
      CHECK(back->actions[i].stage == s.actions[i].stage);
      CHECK(back->actions[i].keep == s.actions[i].keep);
      CHECK(back->actions[i].offload_input == s.actions[i].offload_input);
    }
  }
  CHECK(offloaded > 10);
  const std::string text = schedule_to_json(g, RandomSchedule(g, 3).draw());
  const ModelGraph bare = build_model_graph(tiny_config(), DType::bf16, nullptr);
  CHECK_FALSE(schedule_from_json(bare, text));
  for (const char* bad :
       {"", "[]", "{}", R"({"name":"x","sets":[],"actions":["f 0 0"]})",
        R"({"name":"x","sets":[[]],"actions":["f 99 0"]})", R"({"name":"x","sets":[[]],"actions":["b"]})",
        R"({"name":"x","sets":[["nothing"]],"actions":["f 1 0"]})", R"({"name":"x","sets":[[]],"actions":["o 1 0"]})",
        R"({"name":"x","sets":[["hidden"]],"actions":["o 7 0"]})",
        R"({"name":"x","sets":[["hidden"]],"actions":["p 1 0"]})", R"({"name":"x","sets":[[]],"actions":[7]})"})
    CHECK_FALSE(schedule_from_json(g, bad));
  const Schedule full = training_schedule(g, {CheckpointMode::full, {}});
  CHECK(schedule_strip(g, full) == "IIIIII");
  const auto with_offload = [&](CheckpointMode mode) {
    return schedule_strip(g, training_schedule(g, {.mode = mode, .offload_inputs = true}));
  };
  CHECK(with_offload(CheckpointMode::full) == "HHHHHH");
  CHECK(with_offload(CheckpointMode::off) == "999999");
  CHECK(with_offload(CheckpointMode::sqrt) == "H..H..");
  CHECK(schedule_strip(g, training_schedule(g, {CheckpointMode::off, {}})) == "******");
  CHECK(schedule_strip(g, training_schedule(g, {CheckpointMode::sqrt, {}})) == "I..I..");
  for (const char tenths : schedule_strip(g, training_schedule(g, {CheckpointMode::selective, {}})))
    CHECK((tenths >= '3' && tenths <= '8'));
}

TEST_CASE("the store's bytes are known before it is loaded") {
  for (const QuantType type : {QuantType::nf4, QuantType::none}) {
    const ModelConfig c = tiny_config(false);
    const auto model = tiny_model(c, type);
    size_t sum = 0;
    for (const SourceTensor& t : expected_tensors(c, DType::f32)) sum += stored_bytes(t, model->quant);
    CHECK(sum == model->store->bytes());
  }
  // 8B: 3.6 GB of NF4 and two bf16 embeddings of 1.05 GB.
  CHECK(static_cast<double>(planned_store(llama_8b(), {}, {}).bytes) == doctest::Approx(5.70e9).epsilon(0.01));
}
