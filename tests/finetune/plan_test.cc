// SPDX-License-Identifier: Apache-2.0
// Plans before step 1: limits, what would fit, the largest that does, measured rates, and the figures that papers give.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "finetune/train/calibrate.h"
#include "finetune/train/fit.h"
#include "finetune/train/trainer.h"
#include "kernels/device_scratch.h"
#include "kernels/error.h"
#include "model_testing.h"
#include "temp_dir.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

CostModel nominal() {
  return CostModel::assume(3e11);
}

struct Planning {
  ModelConfig c = smollm2_135m();
  AdapterSet shapes = AdapterSet::shapes({.r = 16}, linear_modules(c));
  ModelGraph graph = build_model_graph(c, DType::bf16, &shapes);
  PlanRequest request{.weight_bytes = planned_store(c, {}, {}).bytes,
                      .trained_parameters = shapes.size(),
                      .workspace_bytes = 4 * kMiB,
                      .program_bytes = 16 * kMiB,
                      .max_tokens = 4 * 512,
                      .loss_chunk_bytes = 64 * kMiB,
                      .checkpointing = {CheckpointMode::off, {}}};
  BatchShape shape{4, 2, 512, [](int64_t m, int64_t l) { return m * l; }};
  MemoryPlan plan() const { return plan_training(graph, request, nominal, true).memory; }
  void limit(size_t bytes) { request.limit = {bytes, true, "memory_limit"}; }
};

}  // namespace

TEST_CASE("a linear op's backward converts its f32 gradient once on a device") {
  // Its workspace has room for dy and, beside it, for the larger of what else changes type: dz of dx = dy W + dz A.
  // Products one by one would have room for one of the two.
  const ModelConfig c = tiny_config();
  const AdapterSet shapes = AdapterSet::shapes({.r = 4}, linear_modules(c));
  const ModelGraph model = build_model_graph(c, DType::bf16, &shapes);
  constexpr int64_t kTokens = 70;
  const auto converted = [&](int64_t width) { return dense_bytes(kTokens, width, DType::bf16); };
  const auto address = [](uintptr_t n) { return reinterpret_cast<void*>(n << 12); };
  int seen = 0;
  for (const LayerGraph& graph : model.stages)
    for (const Op& op : graph.ops) {
      if (op.kind != OpKind::linear || op.in[1] < 0) continue;
      const auto view = [&](uintptr_t n, DType t, int value) {
        return TensorView(address(n), t, kTokens, graph.values[static_cast<size_t>(value)].width);
      };
      const WeightFormats formats = {{graph.prefix + op.module + ".weight", WeightFormat::bf16}};
      DeviceNeeds needs;
      const AttentionLibrary built_in;
      const OpPlanning planning{formats, built_in, needs};
      const StepInputs step{.tokens = kTokens};
      const WeightLease no_weights;
      OpRun r{.ctx = nullptr,
              .model = model,
              .graph = graph,
              .op = op,
              .step = step,
              .weights = no_weights,
              .planning = &planning};
      r.in[1] = view(1, DType::bf16, op.in[1]);
      r.dout[0] = view(2, DType::f32, op.out[0]);
      r.din[0] = view(3, DType::bf16, op.in[0]);
      r.din[1] = view(4, DType::f32, op.in[1]);
      info(op.kind).backward(r);
      const int64_t in = r.din[0].cols, out = r.dout[0].cols, rank = op.lora_rank;
      const size_t lora = dense_bytes(std::max(out, op.lora_dx_fused ? in : 0), rank, DType::bf16);  // A, B are f32
      CHECK(needs.workspace == kLtWorkspace + converted(out) + (op.lora_dx_fused ? converted(rank) : 0) + lora);
      ++seen;
    }
  CHECK(seen == c.num_hidden_layers * 7);
}

TEST_CASE("shapes without buffers plan as adapters do, and hold nothing") {
  const ModelConfig c = tiny_config();
  const AdapterSet shapes = AdapterSet::shapes({.r = 4}, linear_modules(c));
  AdapterSet real({.r = 4}, linear_modules(c), 1);
  CHECK(shapes.size() == real.size());
  CHECK(shapes.values().empty());
  CHECK(shapes.adapters().size() == real.adapters().size());
  const auto model = tiny_model(c);
  Context ctx({.num_threads = 2});
  const Trainer t(ctx, model, real, {.checkpointing = {CheckpointMode::full, {}}, .program_bytes = 8 * kMiB}, 64);
  const ModelGraph g = build_model_graph(c, DType::bf16, &shapes);
  const TrainingPlan p = plan_training(g,
                                       {.weight_bytes = model->store->bytes(),
                                        .weights_mapped = false,
                                        .trained_parameters = shapes.size(),
                                        .workspace_bytes = ctx.workspace_bytes(),
                                        .program_bytes = 8 * kMiB,
                                        .max_tokens = 64,
                                        .checkpointing = {CheckpointMode::full, {}}},
                                       nominal, false);
  REQUIRE(p.memory.lines.size() == t.plan().lines.size());
  for (size_t i = 0; i < p.memory.lines.size(); ++i) {
    CHECK(p.memory.lines[i].name == t.plan().lines[i].name);
    CHECK(p.memory.lines[i].bytes == t.plan().lines[i].bytes);
  }
}

TEST_CASE("on a device the plan has the ops' workspace, and decoded weights take what the schedule leaves") {
  Planning p;
  p.request.checkpointing = {CheckpointMode::automatic, {}};
  const auto planned = [&] { return plan_training(p.graph, p.request, nominal, true); };
  const auto line = [](const TrainingPlan& plan, const std::string& name) {
    for (const MemoryLine& l : plan.memory.lines)
      if (l.name == name) return l.bytes;
    return SIZE_MAX;
  };
  const auto actions = [](const TrainingPlan& plan) {
    std::vector<std::tuple<bool, int, SavedSet>> out;
    for (const Action& a : plan.training.schedule.actions)
      out.emplace_back(a.kind == Action::Kind::backward, a.stage, a.keep);
    return out;
  };
  p.limit(700 * kMiB);
  const TrainingPlan host = planned();
  CHECK(line(host, "decoded weights") == SIZE_MAX);
  CHECK(line(host, "workspace") == p.request.workspace_bytes);
  p.request.device_formats = std::make_shared<WeightFormats>(planned_store(p.c, {}, {}).formats);

  // Sizes by hand: bf16, each a multiple of 256 bytes; q and o, k and v, gate, up and down.
  const size_t q = 2 * 576 * 576, k = 2 * 192 * 576, up = 2 * 1536 * 576, layer = 2 * q + 2 * k + 3 * up;
  p.request.limit = {};
  const TrainingPlan ample = planned();
  CHECK(ample.decoded_weight_bytes() == 30 * layer);
  // The largest need: dz of down_proj, its f32 dy of 2,048 tokens in bf16 beside LoRA's B in bf16.
  CHECK(ample.device_workspace == (size_t{4} << 20) + size_t{2048} * 576 * 2 + 2 * 16 * 1536);
  CHECK(line(ample, "workspace") == p.request.workspace_bytes + ample.device_workspace);

  p.request.decoded_weight_bytes = 0;
  std::vector<size_t> kinds;
  const size_t most = ample.memory.total();
  for (size_t limit = most + kMiB; limit > 450 * kMiB; limit -= 20 * kMiB) {
    p.limit(limit);
    p.request.decoded_weight_bytes = 0;
    const TrainingPlan least = planned();
    p.request.decoded_weight_bytes.reset();
    const TrainingPlan plan = planned();
    CHECK(plan.memory.fits() == least.memory.fits());
    CHECK(actions(plan) == actions(least));  // no recompute for what is decoded
    CHECK(least.decoded_weight_bytes() == 2 * up);
    CHECK(line(plan, "decoded weights") == plan.decoded_weight_bytes());
    const size_t d = plan.decoded_weight_bytes(), left = plan.memory.limit.bytes - least.memory.need() + 2 * up;
    if (plan.memory.fits())
      CHECK(d == (left >= 30 * layer ? 30 * layer : left >= layer ? left / layer * layer : 2 * up));
    kinds.push_back(d == 30 * layer ? 3 : d > layer ? 2 : d == layer ? 1 : 0);
  }
  std::sort(kinds.begin(), kinds.end());
  CHECK(kinds.front() == 0);
  CHECK(kinds.back() == 3);
  CHECK(std::count(kinds.begin(), kinds.end(), 2) > 0);
}

TEST_CASE(
    "layer inputs in host memory: a line beside the total, within what the host has, and advice after checkpointing") {
  Planning p;
  const size_t input = size_t{2048} * 576 * 2, decoded = 4 * size_t{1536} * 576;
  p.request.checkpointing = {.mode = CheckpointMode::full, .offload_inputs = true};
  CHECK_THROWS_WITH_AS(p.plan(), "activation_offloading: found true, but device cpu computes in host memory itself",
                       Error);
  p.request.device_formats = std::make_shared<WeightFormats>(planned_store(p.c, {}, {}).formats);
  p.request.decoded_weight_bytes = 0;
  p.request.place = false;
  const MemoryPlan on_host = p.plan();
  p.request.checkpointing = {CheckpointMode::full, {}};
  const MemoryPlan full = p.plan();
  CHECK(on_host.offloaded_inputs == 30);
  CHECK(on_host.lines.back().name == "offloaded layer inputs");
  CHECK(on_host.lines.back().bytes == 30 * input);
  CHECK(on_host.host() - full.host() == 30 * input);  // beside the staging of uploads
  // On the device two of them remain, of the layer that runs backward and of the next, on its way; or one, at the loss.
  CHECK(full.total() - on_host.total() <= 29 * input);
  CHECK(full.total() - on_host.total() >= 25 * input);
  CHECK(on_host.recompute_overhead > full.recompute_overhead);
  CHECK(on_host.offload_overhead ==
        doctest::Approx(on_host.recompute_overhead - full.recompute_overhead).epsilon(1e-6));
  CHECK(on_host.offload_seconds > 0);
  CHECK(on_host.table().find("offloaded layer inputs") != std::string::npos);
  CHECK(on_host.table().find("(pinned host memory beside it)") != std::string::npos);
  CHECK(full.table().find("offloaded layer inputs") == std::string::npos);

  // auto: as many as the host has room for, under a limit that `true` alone is above.
  p.request.checkpointing = {.mode = CheckpointMode::automatic, .offload_inputs = true};
  p.limit(full.total() - 10 * input);
  p.request.decoded_weight_bytes.reset();
  const auto fast = [] {
    CostModel costs = nominal();
    for (const char* way : {CostModel::kCopyOut, CostModel::kCopyIn})
      costs.set(way, 0.3 * costs.seconds_per_host_byte(true));
    return costs;
  };
  const auto plan = [&] { return plan_training(p.graph, p.request, fast, true).memory; };
  const MemoryPlan any = plan();
  CHECK(any.fits());
  CHECK(any.offloaded_inputs > 9);
  p.request.host_limit = 12 * input;
  const MemoryPlan few = plan();
  CHECK(few.fits());
  CHECK(few.offloaded_inputs > 0);
  CHECK(few.host() <= 12 * input);
  CHECK(few.recompute_overhead >= any.recompute_overhead);
  p.request.checkpointing.mode = CheckpointMode::full;
  const MemoryPlan over = p.plan();
  CHECK_FALSE(over.fits());
  CHECK(over.table().find("of 27.0 MiB free): does not fit") != std::string::npos);
  CHECK_THROWS_WITH_AS(
      check_fits(over),
      "host memory: the inputs of 30 layers take 67.5 MiB, with the staging of uploads 69.6 MiB, 42.6 MiB more than "
      "the 27.0 MiB that are free",
      Error);
  const auto most = [&](bool offload) {
    return largest_tokens(p.graph, p.request, {.mode = CheckpointMode::full, .offload_inputs = offload}, 1 << 20);
  };
  const int64_t limited = most(true);  // by the host, uploads included
  CHECK(limited <= 2048 * 12 / 30);
  CHECK(limited > 700);
  p.request.host_limit = 0;
  CHECK(most(true) > most(false));
  CHECK(most(false) > limited);

  // Advice: after checkpointing, before the loss chunk.
  p.request.checkpointing = {CheckpointMode::off, {}};
  p.request.loss_chunk_bytes = 4 * kMiB;
  std::vector<std::string> keys;
  for (size_t limit = full.total() + decoded - 60 * kMiB; keys.size() < 2 && limit > 100 * kMiB; limit -= input) {
    p.limit(limit);
    const FitAnswer a = make_it_fit(p.graph, p.request, p.shape, fast);
    REQUIRE(a.fits);
    keys.clear();
    for (const FitChange& change : a.changes) keys.push_back(change.key);
    if (keys.size() == 2) CHECK(a.request.checkpointing.offload_inputs);
  }
  CHECK(keys == std::vector<std::string>{"gradient_checkpointing", "activation_offloading"});
}

TEST_CASE("limits: what counts, and what a control group leaves") {
  MemoryPlan p;
  p.lines = {{"weights", 100, true}, {"rest", 50}};
  CHECK(p.fits());
  p.limit = {120, true, "memory_limit"};
  CHECK(p.need() == 150);
  CHECK_FALSE(p.fits());
  p.limit = {120, false, "free memory"};
  CHECK(p.need() == 50);
  CHECK(p.fits());
  CHECK(memory_limit(1000, 5).bytes == 1000);
  CHECK(memory_limit(1000, 5).counts_mapped);
  const MemoryLimit free = memory_limit(0, 5 * kMiB);
  CHECK_FALSE(free.counts_mapped);
  CHECK(free.bytes <= available_memory() + process_memory().anonymous + 64 * kMiB);

  const TempDir dir;
  const auto put = [&](const char* name, const std::string& text) { std::ofstream(dir.path() / name) << text; };
  CHECK(cgroup_room(dir.path().string()) == SIZE_MAX);  // nothing there
  put("memory.limit_in_bytes", "1000000\n");
  put("memory.usage_in_bytes", "700000\n");
  put("memory.stat", "cache 1\ntotal_inactive_file 200000\nrss 5\n");
  CHECK(cgroup_room(dir.path().string()) == 500000);
  put("memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(cgroup_room(dir.path().string()) == SIZE_MAX);
  put("memory.max", "800000\n");
  put("memory.current", "900000\n");
  put("memory.stat", "anon 1\ninactive_file 50000\n");
  CHECK(cgroup_room(dir.path().string()) == 0);
  put("memory.max", "max\n");
  CHECK(cgroup_room(dir.path().string()) == SIZE_MAX);
}

TEST_CASE("what would make it fit: the smallest change, in the order of advice") {
  Planning p;
  const size_t none = p.plan().total();
  p.request.checkpointing = {CheckpointMode::full, {}};
  const size_t full = p.plan().total();
  p.request.checkpointing = {CheckpointMode::off, {}};
  const auto answer = [&] { return make_it_fit(p.graph, p.request, p.shape, nominal); };
  const auto keys = [](const FitAnswer& a) {
    std::vector<std::string> out;
    for (const FitChange& c : a.changes) out.push_back(c.key);
    return out;
  };

  p.limit(none);
  CHECK(answer().fits);
  CHECK(answer().changes.empty());
  p.limit((none + full) / 2);
  CHECK(keys(answer()) == std::vector<std::string>{"gradient_checkpointing"});
  CHECK(answer().text() == "gradient_checkpointing: auto");
  CHECK(answer().changes[0].need <= (none + full) / 2);
  // The loss chunk comes before the batch, the batch before the length, and rows of a step stay.
  size_t smaller = full - 10 * kMiB;
  FitAnswer a;
  for (p.limit(smaller); (a = answer()).changes.size() < 2; p.limit(smaller)) smaller -= 8 * kMiB;
  CHECK(keys(a) == std::vector<std::string>{"gradient_checkpointing", "loss_chunk_bytes"});
  CHECK(a.request.loss_chunk_bytes < 64 * kMiB);
  for (p.limit(smaller); (a = answer()).changes.size() < 3; p.limit(smaller)) smaller -= 8 * kMiB;
  CHECK(a.fits);
  CHECK_FALSE(a.shortens);
  CHECK(keys(a) == std::vector<std::string>{"gradient_checkpointing", "loss_chunk_bytes", "micro_batch_size",
                                            "gradient_accumulation_steps"});
  CHECK(a.shape.micro_batch_size < 4);
  CHECK(a.shape.micro_batch_size * a.shape.gradient_accumulation_steps == 8);
  // What it says does fit.
  p.request = a.request;
  CHECK(p.plan().fits());
  CHECK(static_cast<double>(p.plan().total()) == doctest::Approx(a.changes.back().need).epsilon(0.01));

  Planning tight;
  size_t least = full - 60 * kMiB;
  for (tight.limit(least); !(a = make_it_fit(tight.graph, tight.request, tight.shape, nominal)).shortens;
       tight.limit(least))
    least -= 10 * kMiB;
  CHECK(a.changes.back().key == "max_seq_length");
  CHECK(std::stoi(a.changes.back().value) < 512);
  CHECK(a.changes.back().need <= least);
  tight.limit(100 * kMiB);  // less than the weights
  a = make_it_fit(tight.graph, tight.request, tight.shape, nominal);
  CHECK_FALSE(a.fits);
}

TEST_CASE("the largest that fits does, and two percent more do not") {
  Planning p;
  p.limit(600 * kMiB);
  int64_t before = 0;
  for (const auto mode : {CheckpointMode::off, CheckpointMode::full}) {
    const int64_t tokens = largest_tokens(p.graph, p.request, {mode, {}}, 1 << 20);
    REQUIRE(tokens > before);
    p.request.checkpointing = {mode, {}};
    p.request.max_tokens = tokens;
    CHECK(p.plan().fits());
    p.request.max_tokens = tokens + tokens / 50 + 1;
    CHECK_FALSE(p.plan().fits());
    before = 3 * tokens;  // checkpointing makes room for several times as many
  }
  CHECK(largest_tokens(p.graph, p.request, {CheckpointMode::full, {}}, 100) == 100);
  p.request.checkpointing = {CheckpointMode::automatic, {}};
  const int64_t m = largest_micro_batch(p.graph, p.request, p.shape, 12, nominal);
  CHECK(12 % m == 0);
  p.request.max_tokens = m * 512;
  CHECK(p.plan().fits());
  p.limit(10 * kMiB);
  CHECK(largest_tokens(p.graph, p.request, {CheckpointMode::full, {}}, 1 << 20) == 0);
  CHECK(largest_micro_batch(p.graph, p.request, p.shape, 12, nominal) == 0);
}

TEST_CASE("rates are measured for every op of a step, and kept") {
  Context ctx({.num_threads = 2});
  const ModelConfig c = tiny_config();
  const CalibrationShape shape{c, DType::bf16, {.r = 4, .lora_dropout = 0.1}, 64, 1 << 16};
  const TempDir dir;
  const CostModel first = measured_costs(ctx, shape, dir.path());
  const CostModel again = measured_costs(ctx, shape, dir.path());  // from the file
  CHECK(first.rates() == again.rates());
  CHECK(first.seconds_per_kept_byte() > 0);
  const AdapterSet shapes = AdapterSet::shapes(shape.lora, linear_modules(c));
  const ModelGraph g = build_model_graph(c, DType::bf16, &shapes);
  const SchedulePlanner planner(g, first, {.max_tokens = 64});
  const ProgramCost off = planner.fixed({CheckpointMode::off, {}}).cost,
                    full = planner.fixed({CheckpointMode::full, {}}).cost;
  CHECK(off.recompute == 0);
  CHECK(full.recompute > 0);
  CHECK(full.recompute < full.forward);
  // A file that is damaged is measured again, not believed.
  for (const auto& f : std::filesystem::recursive_directory_iterator(dir.path()))
    if (f.is_regular_file()) std::ofstream(f.path()) << "{\"key\": 1}";
  CHECK(measured_costs(ctx, shape, dir.path()).rates().size() == first.rates().size());
  // A wide model is measured on a narrow one of its kind.
  ModelConfig wide = smollm2_135m();
  wide.hidden_size = 8192, wide.intermediate_size = 28672, wide.num_attention_heads = 64, wide.num_key_value_heads = 8;
  wide.head_dim = 128, wide.vocab_size = 128256;
  const CostModel narrow = calibrate(ctx, {wide, DType::bf16, {.r = 4}, 16, 1 << 20});
  const AdapterSet wide_shapes = AdapterSet::shapes({.r = 4}, linear_modules(wide));
  const ModelGraph wide_graph = build_model_graph(wide, DType::bf16, &wide_shapes);
  CHECK(SchedulePlanner(wide_graph, narrow, {.max_tokens = 16}).fixed({CheckpointMode::full, {}}).cost.total() > 0);
  // Adapters on some linears, which group otherwise than all of them do.
  for (const auto& [one, two] : {std::pair{"q_proj", "v_proj"}, {"k_proj", "v_proj"}, {"up_proj", "o_proj"}}) {
    std::vector<AdapterSet::Module> some;
    for (const auto& m : linear_modules(wide))
      if (m.path.ends_with(one) || m.path.ends_with(two)) some.push_back(m);
    const AdapterSet some_shapes = AdapterSet::shapes({.r = 4}, some);
    const ModelGraph some_graph = build_model_graph(wide, DType::bf16, &some_shapes);
    CHECK(SchedulePlanner(some_graph, narrow, {.max_tokens = 16}).fixed({CheckpointMode::full, {}}).cost.total() > 0);
  }
}

// Bytes a token and layer that a policy keeps, from the graph.
static double kept_per_token(const ModelConfig& c, CheckpointMode mode, bool lora) {
  AdapterSet shapes = AdapterSet::shapes({.r = 16}, lora ? linear_modules(c) : std::vector{linear_modules(c)[0]});
  const ModelGraph g = build_model_graph(c, DType::bf16, &shapes);
  const auto analysis = analyse(g);
  const size_t layer = 2;  // it gives dx
  const Schedule s = training_schedule(g, {mode, {}});
  double bytes = 0;
  for (size_t v = 0; v < g.stages[layer].values.size(); ++v)
    if (s.actions[layer].keep[v])
      bytes += static_cast<double>(g.stages[layer].values[v].width) *
               static_cast<double>(size_of(g.stages[layer].values[v].dtype));
  return bytes;
}

TEST_CASE("what a layer keeps is what the formulas say") {
  // Llama-3-8B: h 4096, kv 1024, f 14336, 32 heads, r 16. All: x n1 q k v o lse x1 n2 g u a, two rstd, z of 7 linears.
  ModelConfig c = smollm2_135m();
  c.hidden_size = 4096, c.intermediate_size = 14336, c.num_attention_heads = 32, c.num_key_value_heads = 8;
  c.head_dim = 128, c.vocab_size = 128256, c.num_hidden_layers = 4;
  const double h = 4096, kv = 1024, f = 14336, heads = 32, z = 7 * 16 * 2;
  CHECK(kept_per_token(c, CheckpointMode::off, true) == 2 * (6 * h + 2 * kv + 3 * f) + 4 * heads + 8 + z);
  CHECK(kept_per_token(c, CheckpointMode::selective, true) == 2 * (4 * h + 2 * kv + 2 * f) + 4 * heads + 8 + z);
  CHECK(kept_per_token(c, CheckpointMode::full, true) == 2 * h);
  // Selective frees at least 30 % of what is kept without.
  CHECK(kept_per_token(c, CheckpointMode::selective, true) <= 0.7 * kept_per_token(c, CheckpointMode::off, true));

  // Korthikanti et al. 2022: 34 s b h for a GPT layer (h 4 f, no grouping), where everything is trained. Of its parts,
  // in units of s b h bytes: dropout masks 3 (recomputed here from a counter), GELU input and output 8 + 8 (here the
  // gated pair and its product, 3 f of 4 h: 24), softmax and its dropout 5 a s / h (never stored with fused attention).
  c.intermediate_size = 4 * 4096, c.num_key_value_heads = 32;
  const double gpt = 34 - 3 - 16;  // without masks and the MLP's inner part: 15
  const double ours = kept_per_token(c, CheckpointMode::off, true) / h - 24 - (4 * heads + 8 + z) / h;
  // 15: norms' inputs 2 + 2, QKV input 2, q k v 6, attention output 2 (theirs 11 - 1) and the MLP's input 2 (theirs 19
  // - 17). Ours keeps the norms' outputs beside their inputs, since lora_A's gradient reads them: x n1 | q k v | o | x1
  // n2 = 16.
  CHECK(gpt == 15);
  CHECK(ours == 16);
}

TEST_CASE("seed figures: two sequences of 1,024 tokens, 28 layers of 2,048, a vocabulary of 248,000") {
  ModelConfig c = smollm2_135m();
  c.hidden_size = 2048, c.intermediate_size = 6144, c.num_hidden_layers = 28, c.num_attention_heads = 16;
  c.num_key_value_heads = 8, c.head_dim = 128, c.vocab_size = 248000;
  const AdapterSet shapes = AdapterSet::shapes({.r = 16}, linear_modules(c));
  const ModelGraph g = build_model_graph(c, DType::bf16, &shapes);
  const Program p = compile(g, training_schedule(g, {CheckpointMode::full, {}}), {.max_tokens = 2048});
  size_t inputs = 0, most = 0;
  for (const Buffer& b : p.buffers) {
    if (b.saved && b.row_bytes == 2 * 2048) inputs += b.bytes;
    most = std::max(most, b.bytes);
  }
  CHECK(inputs == size_t{2048} * 2048 * 2 * 29);  // 28 layers and the final norm: 0.24 GB
  CHECK(static_cast<double>(inputs) * 28 / 29 == doctest::Approx(0.235e9).epsilon(0.01));
  const size_t logits = size_t{2048} * 248000 * 4;
  CHECK(static_cast<double>(logits) == doctest::Approx(2.03e9).epsilon(0.01));
  CHECK(most <= 128 * kMiB);  // no buffer of the step comes near the logits
}
