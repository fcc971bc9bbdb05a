// SPDX-License-Identifier: Apache-2.0
// What checkpointing costs and frees: bytes of the arena and time of a step for each strategy, planned and measured, as
// a ratio to the step that rebuilds nothing, in interleaved pairs of one process.
//   bantam_recompute_bench [--shape smollm2 | llama-1.1b | deep | llama-8b-4] [--tokens T] [--threads N] [--rounds N]
//                          [--budgets PERCENT,...] [--plan-only] [--profile]
// smollm2: SmolLM2-135M (T 1024); llama-1.1b: TinyLlama's shape (T 512); deep: 1,000 narrow layers (T 512); llama-8b-4:
// 4 layers of Llama-3-8B's shape (T 512). Weights are random. Budgets are percent of what `selective` keeps (deep: of
// what is kept without checkpointing). One thread is timed by its CPU time, several by the wall clock.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "finetune/train/calibrate.h"
#include "finetune/train/trainer.h"
#include "tests/finetune/model_testing.h"

using namespace bantam;

namespace {

int g_threads = 1;

double now() {
  timespec t;
  clock_gettime(g_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Shape {
  ModelConfig config;
  int64_t tokens;
};

Shape shape_of(const std::string& name) {
  ModelConfig c = testing::smollm2_135m();
  if (name == "smollm2") return {c, 1024};
  if (name == "llama-1.1b") {
    c.vocab_size = 32000;
    c.hidden_size = 2048;
    c.intermediate_size = 5632;
    c.num_hidden_layers = 22;
    c.num_attention_heads = 32;
    c.num_key_value_heads = 4;
    c.head_dim = 64;
    return {c, 512};
  }
  if (name == "llama-8b-4") {
    c.vocab_size = 8192;
    c.hidden_size = 4096;
    c.intermediate_size = 14336;
    c.num_hidden_layers = 4;
    c.num_attention_heads = 32;
    c.num_key_value_heads = 8;
    c.head_dim = 128;
    return {c, 512};
  }
  if (name == "deep") {
    c.vocab_size = 1024;
    c.hidden_size = 256;
    c.intermediate_size = 768;
    c.num_hidden_layers = 1000;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 64;
    return {c, 512};
  }
  std::fprintf(stderr, "no shape '%s'\n", name.c_str());
  std::exit(2);
}

// What a checkpoint function around a layer does: the whole layer forward again, down_proj included.
Schedule whole_forward_again(const ModelGraph& model) {
  const auto analysis = analyse(model);
  Schedule s = training_schedule(model, {CheckpointMode::full, {}});
  s.name = "whole forward";
  std::vector<Action> actions;
  for (const Action& a : s.actions) {
    const auto stage = static_cast<size_t>(a.stage);
    if (a.kind == Action::Kind::backward && model.stages[stage].layer >= 0)
      actions.push_back({Action::Kind::forward, a.stage, keep_all(model.stages[stage], analysis[stage])});
    actions.push_back(a);
  }
  s.actions = std::move(actions);
  return s;
}

// Planned and measured seconds of each op of a step.
void print_profile(Trainer& t, const PlannedSchedule& p, const CostModel& costs, const StepBatch& batch) {
  std::map<std::string, double> planned, measured;
  for (const Instr& n : p.program.instrs) {
    const LayerGraph& g = t.graph().stages[static_cast<size_t>(n.stage)];
    const Op& op = g.ops[static_cast<size_t>(n.op)];
    planned[CostModel::key(op, n.backward)] +=
        costs.seconds(t.graph().config, g, op, n.backward, n.din[0].buffer >= 0, p.program.max_tokens);
  }
  t.set_profile([&](const Instr& n, const Op& op, double s) { measured[CostModel::key(op, n.backward)] += s; });
  t.train_step(batch, 1, 1e-5, 0);
  t.set_profile({});
  for (const auto& [key, s] : planned)
    std::printf("    %-44s planned %7.1f ms  measured %7.1f ms\n", key.c_str(), 1e3 * s, 1e3 * measured[key]);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "smollm2", budgets = "100,75,50,30,20,10";
  int64_t tokens = 0;
  int rounds = 3;
  bool plan_only = false, profile = false;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (!std::strcmp(argv[i], "--shape"))
      name = value();
    else if (!std::strcmp(argv[i], "--tokens"))
      tokens = std::atoll(value());
    else if (!std::strcmp(argv[i], "--threads"))
      g_threads = std::atoi(value());
    else if (!std::strcmp(argv[i], "--rounds"))
      rounds = std::atoi(value());
    else if (!std::strcmp(argv[i], "--budgets"))
      budgets = value();
    else if (!std::strcmp(argv[i], "--plan-only"))
      plan_only = true;
    else if (!std::strcmp(argv[i], "--profile"))
      profile = true;
  }
  const Shape shape = shape_of(name);
  if (tokens == 0) tokens = shape.tokens;
  const ModelConfig& c = shape.config;
  constexpr size_t kChunk = size_t{16} << 20;
  Context ctx({.num_threads = g_threads});
  AdapterSet adapters({.r = 16}, linear_modules(c), 1);
  const ModelGraph graph = build_model_graph(c, DType::bf16, &adapters);
  const CostModel costs = calibrate(ctx, {c, DType::bf16, adapters.config(), tokens, kChunk});
  const SchedulePlanner planner(graph, costs, {.max_tokens = tokens, .loss_chunk_bytes = kChunk});

  const PlannedSchedule off = planner.fixed({CheckpointMode::off, {}});
  std::vector<PlannedSchedule> all = {planner.fixed({CheckpointMode::selective, {}})};
  const size_t whole = name == "deep" ? off.program.peak : all[0].program.peak;
  std::stringstream list(budgets);
  for (std::string item; std::getline(list, item, ',');) {
    auto p = planner.automatic(static_cast<size_t>(std::atof(item.c_str()) / 100 * static_cast<double>(whole)));
    if (!p) {
      std::printf("auto %s %%: nothing fits\n", item.c_str());
      continue;
    }
    p->schedule.name = "auto " + item + " %";
    all.push_back(std::move(*p));
  }
  for (const auto mode : {CheckpointMode::full, CheckpointMode::sqrt}) all.push_back(planner.fixed({mode, {}}));
  all.push_back(planner.of(whole_forward_again(graph)));

  std::printf("%s, T = %lld, tier %s, %d thread(s), %s\n", name.c_str(), static_cast<long long>(tokens),
              name_of(ctx.isa()), g_threads, g_threads == 1 ? "thread CPU time" : "wall clock");
  std::printf("%-16s %12s %8s %10s %10s\n", "strategy", "arena", "of none", "planned", "measured");
  std::printf("%-16s %12s %8s %9.2fs", "none", size_text(off.program.peak).c_str(), "100 %", off.cost.total());
  if (plan_only) std::printf("\n");
  std::shared_ptr<const Model> model;
  std::optional<Trainer> base;
  auto samples = testing::random_samples(c, {static_cast<int>(tokens)});
  std::fill(samples[0].trained.begin() + 1, samples[0].trained.end(), 1);
  const StepBatch batch = make_step(samples, {{0}});
  const auto step = [&](Trainer& t) {
    const double start = now();
    t.train_step(batch, 1, 1e-5, 0);
    return now() - start;
  };
  const auto make = [&](std::optional<Trainer>& t, const Schedule& s) {
    TrainerOptions o;
    o.loss_chunk_bytes = kChunk;
    o.schedule = s;
    o.limit = memory_limit(size_t{1} << 50, 0);
    t.emplace(ctx, model, adapters, o, tokens);
    t->reserve();
    step(*t);  // warm
  };
  if (!plan_only) {
    model = testing::tiny_model(c);
    make(base, off.schedule);
    std::vector<double> times;
    for (int r = 0; r < rounds; ++r) times.push_back(step(*base));
    std::printf(" %9.2fs\n", *std::min_element(times.begin(), times.end()));
    if (profile) print_profile(*base, off, costs, batch);
  }
  for (const PlannedSchedule& p : all) {
    std::printf("%-16s %12s %6.1f %% %+9.1f %%", p.schedule.name.c_str(), size_text(p.program.peak).c_str(),
                100 * static_cast<double>(p.program.peak) / static_cast<double>(off.program.peak),
                100 * (p.cost.total() / off.cost.total() - 1));
    if (!plan_only) {
      std::optional<Trainer> t;
      const size_t before = process_memory().anonymous;
      make(t, p.schedule);
      const size_t grown = process_memory().anonymous - before;
      std::vector<double> ratios;
      double a = 1e30, b = 1e30;
      for (int r = 0; r < rounds; ++r) {
        const double with = step(*t), without = step(*base);
        a = std::min(a, with);
        b = std::min(b, without);
        ratios.push_back(with / without);
      }
      std::sort(ratios.begin(), ratios.end());
      std::printf(" %+9.1f %%  (best %+.1f %%)  arena measured %s", 100 * (ratios[ratios.size() / 2] - 1),
                  100 * (a / b - 1), size_text(grown).c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
