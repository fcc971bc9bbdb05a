// SPDX-License-Identifier: Apache-2.0
// Section of bantam_gpu_bench: whole training steps under each way of checkpointing.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "finetune/train/trainer.h"
#include "gpu_bench.h"
#include "kernels/error.h"
#include "step_flops.h"
#include "tests/finetune/model_testing.h"

namespace bantam::gpu_bench {

namespace {

ModelConfig llama_8b() {
  ModelConfig c = testing::tiny_config(false);
  c.vocab_size = 128256;
  c.hidden_size = 4096;
  c.intermediate_size = 14336;
  c.num_hidden_layers = 32;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.max_position_embeddings = 8192;
  c.rope_theta = 500000;
  return c;
}

// Weights of a plausible size, parts of one table of random numbers: no copy of the whole model in f32, and no time.
class RandomWeights : public TensorSource {
 public:
  explicit RandomWeights(const ModelConfig& c) : tensors_(expected_tensors(c, DType::bf16)), table_(1 << 20) {
    uint64_t state = 1;
    for (float& x : table_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = (static_cast<float>(state >> 40) * 0x1p-24f - 0.5f) * 0.06f;
    }
  }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  std::string fingerprint() const override { return "random"; }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    const SourceTensor& t = tensor_with_rows(i, r0, n);
    float* const end = out + n * t.cols();
    if (t.shape.size() == 1) return std::fill(out, end, 1.0f);
    size_t at = (i * 1000003 + static_cast<size_t>(r0) * 7919) % table_.size();
    while (out < end) {
      const size_t part = std::min(static_cast<size_t>(end - out), table_.size() - at);
      out = std::copy_n(table_.begin() + static_cast<std::ptrdiff_t>(at), part, out);
      at = 0;
    }
  }

 private:
  std::vector<SourceTensor> tensors_;
  std::vector<float> table_;
};

void one_strategy(Bench& b, const std::shared_ptr<const Model>& model, const ModelGraph& graph,
                  const Schedule& schedule, const StepBatch& batch, int64_t tokens, double flops) {
  const std::string name = "step, " + schedule.name;
  AdapterSet adapters({.r = 16}, linear_modules(model->config), 1);
  TrainerOptions options;
  options.schedule = schedule;
  options.limit = memory_limit(b.ctx, 0, size_t{1} << 30);
  Trainer trainer(b.ctx, model, adapters, options, tokens);
  const size_t planned = trainer.plan().anonymous();
  try {
    trainer.reserve();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::does_not_fit) throw;
    return b.row(name, "does not fit", size_text(planned) + " planned");
  }
  std::vector<double> seconds;
  double loss = 0;
  for (int i = 0; i < 5; ++i) {  // the first two warm up: scratch grows, algorithms are chosen
    if (i > 2 && b.late(str("step ", i + 1, " of ", schedule.name))) break;
    b.wait();
    const double start = now();
    loss = trainer.train_step(batch, i, 1e-5, 0).loss;
    b.wait();
    if (i >= 2 || b.tiny) seconds.push_back(now() - start);
    if (b.tiny) break;
  }
  if (!std::isfinite(loss)) throw Error(ErrorCode::numeric, str("the loss is ", loss));
  const double best = *std::min_element(seconds.begin(), seconds.end());
  if (schedule.name == "none") b.step_seconds = best * 32 / static_cast<double>(graph.config.num_hidden_layers);
  b.row(name, format("%.0f tokens/s", static_cast<double>(tokens) / best),
        percent(flops / best / b.rate) + " of the product rate (goal: 65 %)");
  const size_t used = trainer.memory_bytes();
  b.row(name + " memory", size_text(used),
        str(size_text(planned), " planned, ", percent(static_cast<double>(used) / static_cast<double>(planned)),
            " of that"));
}

}  // namespace

void whole_steps(Bench& b, int64_t layers) {
  ModelConfig c = b.tiny ? testing::tiny_config(false) : llama_8b();
  if (layers > 0) c.num_hidden_layers = layers;
  const int length = b.tiny ? 8 : 2048;
  const int64_t tokens = 4 * length;
  const double start = now();
  auto model = std::make_shared<Model>();
  model->config = c;
  model->quant = {QuantType::nf4, true};
  model->store = WeightStore::in_memory(RandomWeights(c), model->quant, &b.ctx);
  std::printf("%lld layers, %lld tokens in sequences of %d, weights %s (quantised here in %.1f s)\n",
              static_cast<long long>(c.num_hidden_layers), static_cast<long long>(tokens), length,
              size_text(model->store->bytes()).c_str(), now() - start);

  AdapterSet adapters({.r = 16}, linear_modules(c), 1);
  const ModelGraph graph = build_model_graph(c, DType::bf16, &adapters);
  const SchedulePlanner planner(graph, CostModel::assume(b.rate > 0 ? b.rate : 1e12),
                                {.max_tokens = tokens, .sequence = length});
  auto samples = testing::random_samples(c, {length, length, length, length});
  for (Sample& s : samples) std::fill(s.trained.begin() + 1, s.trained.end(), 1);
  const StepBatch batch = make_step(samples, {{0, 1, 2, 3}});
  const double flops = step_flops(graph, tokens, length);

  const PlannedSchedule none = planner.fixed({CheckpointMode::off, {}}),
                        full = planner.fixed({CheckpointMode::full, {}});
  std::vector<Schedule> schedules = {none.schedule, planner.fixed({CheckpointMode::selective, {}}).schedule};
  schedules[0].name = "none";
  schedules[1].name = "selective";
  // A budget that makes auto rebuild something: 30 % of what is kept with none, or what `true` takes where that is
  // more.
  const size_t budget = std::max(full.program.peak, none.program.peak / 10 * 3);
  if (auto found = planner.automatic(budget)) {
    schedules.push_back(found->schedule);
    schedules.back().name = str("auto (", size_text(budget), ")");
  }
  schedules.push_back(full.schedule);
  schedules.back().name = "true";
  schedules.push_back(planner.fixed({.mode = CheckpointMode::full, .offload_inputs = true}).schedule);
  schedules.back().name = "true, offloaded";
  for (const Schedule& s : schedules) {
    if (b.late("step, " + s.name)) return;
    one_strategy(b, model, graph, s, batch, tokens, flops);
  }
}

}  // namespace bantam::gpu_bench
