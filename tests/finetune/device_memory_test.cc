// SPDX-License-Identifier: Apache-2.0
// What a training on a device (device_testing.h) takes of its memory and the host's, what it waits for, and when it
// stops.
#include <algorithm>
#include <optional>

#include "device_testing.h"
#include "finetune/train/generator.h"
#include "finetune/train/run.h"
#include "kernels/device_scratch.h"
#include "kernels/error.h"
#include "temp_dir.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

// One training of three steps and an evaluation, whose largest micro-batch has as many tokens as were planned for.
struct Run {
  ModelConfig config = small();
  std::shared_ptr<Model> model = std::make_shared<Model>();
  std::vector<Sample> samples = random_samples(config, {13, 7, 9, 3});
  AdapterSet adapters;
  Context ctx{{.num_threads = 1, .backend = kDevice}};
  std::optional<Trainer> trainer;
  size_t decodes = 0, ahead = 0;

  Run(const QuantConfig& quant, const LoraConfig& lora, TrainerOptions options)
      : adapters(random_adapters(config, lora)) {
    model->config = config;
    model->quant = quant;
    const auto weights = random_weights(config, build_model_graph(config, DType::f32, nullptr), 1);
    model->store = WeightStore::in_memory(*memory_source(weights), quant);
    options.loss_chunk_bytes = size_t{1} << 16;
    trainer.emplace(ctx, model, adapters, options, 32);
  }
  Trace run() {
    Trace trace;
    trainer->reserve();
    const size_t pinned = ctx.backend().memory_use().pinned;
    const size_t before = ctx.backend().weights_decoded(false), before_ahead = ctx.backend().weights_decoded(true);
    setenv("COC_FAIL", "cudaMalloc:2", 1);  // from here on there is no memory to get
    for (int k = 0; k < 3; ++k) {
      const StepResult r = trainer->train_step(make_step(samples, {{0, 1, 2, 3}, {k, 3}}), k, 1e-3, 0);
      trace.add(r);
    }
    trace.evaluated = trainer->evaluate(make_batch(samples, {0, 1, 2, 3})).loss;
    unsetenv("COC_FAIL");
    CHECK(ctx.backend().memory_use().pinned == pinned);
    decodes = ctx.backend().weights_decoded(false) - before;
    ahead = ctx.backend().weights_decoded(true) - before_ahead;
    trace.finish(*trainer);
    return trace;
  }
};

}  // namespace

TEST_CASE("workspace and upload staging that were planned are what is taken, to the byte; nothing is allocated later") {
  std::vector<size_t> sizes;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const QuantConfig& quant :
         {QuantConfig{QuantType::nf4, true}, QuantConfig{QuantType::nf4, false}, QuantConfig{QuantType::none, false}})
      for (const double dropout : {0.0, 0.1})
        for (const CheckpointMode mode : {CheckpointMode::off, CheckpointMode::full}) {
          CAPTURE(name_of(dtype));
          CAPTURE(static_cast<int>(quant.type));
          CAPTURE(dropout);
          Run r(quant, {.r = 4, .lora_alpha = 8, .lora_dropout = dropout},
                {.dtype = dtype, .checkpointing = {mode, {}}});
          r.run();
          const TrainingPlan& plan = r.trainer->training_plan();
          CHECK(r.ctx.backend().workspace_high() == plan.device_workspace);
          const MemoryUse use = r.ctx.backend().memory_use();
          CHECK(use.pinned == plan.staging);
          CHECK(staging_bytes(r.ctx.backend().staging_high()) == plan.staging);
          CHECK(plan.memory.host() == plan.staging);
          for (const MemoryLine& l : plan.memory.lines) {
            CHECK(l.host == (l.name == "upload staging"));
            if (l.host) CHECK(l.bytes == plan.staging);
            if (l.name == "workspace") CHECK(l.bytes == plan.device_workspace);
            if (l.name == "decoded weights") CHECK(l.bytes == plan.decoded_weight_bytes());
          }
          CHECK((plan.decoded_weight_bytes() > 0) == (quant.type == QuantType::nf4));
          sizes.push_back(plan.device_workspace);
        }
  std::sort(sizes.begin(), sizes.end());
  CHECK(std::unique(sizes.begin(), sizes.end()) - sizes.begin() > 1);  // it is not one constant for all
}

TEST_CASE("decoded weights: numbers are the same with any memory for them, and more memory decodes less") {
  const ModelConfig c = small();
  const auto layers = static_cast<size_t>(c.num_hidden_layers), linears = size_t{7};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    const auto options = [&](CheckpointMode mode, size_t decoded) {
      return TrainerOptions{.dtype = dtype, .checkpointing = {mode, {}}, .decoded_weight_bytes = decoded};
    };
    const LoraConfig lora{.r = 4, .lora_alpha = 8, .lora_dropout = 0.1};
    Run all({}, lora, options(CheckpointMode::full, SIZE_MAX));
    const size_t everything = all.trainer->training_plan().decoded_weight_bytes();
    REQUIRE(everything % layers == 0);
    const Trace want = all.run();
    CHECK(all.decodes == layers * linears);  // each once in the whole run
    all.trainer.reset();

    Run layer({}, lora, options(CheckpointMode::full, everything / layers));
    CHECK(layer.trainer->training_plan().decoded_weight_bytes() == everything / layers);
    CHECK(layer.run() == want);
    // One decode serves recompute and dx of a layer, and a turn finds the layer where it turns: three steps of two
    // micro-batches and an evaluation.
    const size_t sweep = (layers - 1) * linears;
    CHECK(layer.decodes == linears + 6 * 2 * sweep + sweep);
    layer.trainer.reset();

    Run two({}, lora, options(CheckpointMode::full, 0));
    CHECK(two.trainer->training_plan().decoded_slots.size() == 2);
    CHECK(two.run() == want);
    CHECK(two.decodes > layer.decodes);
    two.trainer.reset();

    Run off({}, lora, options(CheckpointMode::off, 0));
    CHECK(off.run() == want);
    CHECK(off.decodes < two.decodes);                                               // nothing is recomputed
    for (const Run* r : {&all, &layer, &two, &off}) CHECK(r->ahead == r->decodes);  // while the ops before it run
  }
}

TEST_CASE("emulation: nothing waits for the device within a step; its end reads the norm, then the losses") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = 0.1});
  const auto samples = random_samples(c, {13, 7, 9, 2});
  Context ctx({.num_threads = 1, .backend = kDevice});
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    Trainer t(ctx, model, adapters, {.dtype = dtype, .checkpointing = {CheckpointMode::full, {}}}, 22);
    const StepBatch batch = make_step(samples, {{0, 2}, {1}, {3}});
    const double scale = 1 / batch.total_weight;
    t.train_step(batch, 0, 1e-3, 0);  // scratch and staging grow here
    double some = 0;
    const DeviceBuffer memory(ctx.backend(), sizeof some, "a number");
    const unsigned long one_read = waits([&] { memory.download(&some, sizeof some); });
    CHECK(one_read > 0);

    t.begin_step();
    CHECK(waits([&] {
            for (const Batch& b : batch.micro) t.accumulate_async(b, scale, 0);
          }) == 0);
    double sum = 0, apart = 0;
    CHECK(waits([&] { sum = t.take_losses(); }) == one_read);
    CHECK(waits([&] { CHECK(t.update(1, 0).grad_norm > 0); }) == one_read);  // a rate of 0: the losses stay
    for (const Batch& b : batch.micro) CHECK(waits([&] { apart += t.accumulate(b, scale, 0); }) == one_read);
    CHECK(sum == apart);
    CHECK(waits([&] { CHECK(t.train_step(batch, 2, 1e-3, 0).loss == sum / batch.total_weight); }) == 2 * one_read);
    CHECK(waits([&] { CHECK(t.take_losses() == 0); }) == 0);
  }
}

namespace {

// A run of five micro-batches a step.
struct Stopped {
  ModelConfig config = small();
  std::shared_ptr<const Model> model = tiny_model(config);
  Dataset data{random_samples(config, {13, 7, 21, 2, 30, 9, 17, 5, 11, 8, 4, 19, 6, 14, 3}), {}};
  TrainOptions options;
  TempDir folder;
  Stopped() {
    options.batches = {1, 5, 40, false, 5};
    options.num_epochs = 1;
    options.lr.learning_rate = 1e-2;
    options.run_key = "a";
    options.output_dir = folder.path();
    options.trainer.loss_chunk_bytes = size_t{1} << 16;
    options.trainer.dtype = DType::f32;
  }
  TrainReport run(const std::string& backend, AdapterSet& adapters, const TrainHooks& hooks = {},
                  std::stop_token stop = {}) const {
    Context ctx({.num_threads = 1, .backend = backend});
    return bantam::train(ctx, model, adapters, data, nullptr, options, hooks, std::move(stop));
  }
  AdapterSet adapters() const { return AdapterSet({.r = 4, .lora_dropout = 0.1}, linear_modules(config), 3); }
};

}  // namespace

TEST_CASE(
    "a stop request within a step gives it up on every backend, and the resumed run has the unbroken one's bits") {
  for (const std::string& backend : {std::string(), kDevice}) {
    CAPTURE(backend);
    const Stopped unbroken, s;
    AdapterSet want = unbroken.adapters(), a = s.adapters(), b = s.adapters();
    CHECK(unbroken.run(backend, want).state.step == 3);
    std::stop_source source;
    int64_t given = 0, steps = 0;
    TrainHooks hooks;
    hooks.on_step = [&](const StepEvent&) { return ++steps > 0; };
    hooks.on_micro_batch = [&](int64_t m) {
      ++given;
      if (steps == 1 && m == 3) source.request_stop();
    };
    const TrainReport r = s.run(backend, a, hooks, source.get_token());
    CHECK_FALSE(r.finished);
    CHECK(r.state.step == 1);
    CHECK(given == 5 + 4);
    CHECK(list_checkpoints(s.folder.path()) == std::vector<int64_t>{1});
    CHECK(s.run(backend, b).finished);
    CHECK(std::equal(b.values().begin(), b.values().end(), want.values().begin()));
  }
}

TEST_CASE(
    "emulation: the host is at most two micro-batches ahead of the device, and a step synchronises at its end only") {
  const Stopped s;
  AdapterSet adapters = s.adapters();
  const Trainer* trainer = nullptr;
  int64_t given = 0;
  std::vector<unsigned long> syncs;  // of each step, up to its end
  const Context ctx({.num_threads = 1, .backend = kDevice});
  double some = 0;
  const DeviceBuffer memory(ctx.backend(), sizeof some, "a number");
  const unsigned long one_read = waits([&] { memory.download(&some, sizeof some); });
  unsigned long before = 0;
  TrainHooks hooks;
  hooks.on_plan = [&](const RunPlan&, const Trainer& t) { trainer = &t; };
  hooks.on_micro_batch = [&](int64_t m) {
    ++given;
    CHECK_FALSE(trainer->behind());
    if (m == 0) before = sync_count();
  };
  hooks.on_step = [&](const StepEvent&) { return syncs.push_back(sync_count() - before), true; };
  CHECK(s.run(kDevice, adapters, hooks).finished);
  CHECK(given == 15);
  REQUIRE(syncs.size() == 3);
  CHECK(syncs[1] == 2 * one_read);  // the first step also looks at the gradients
  CHECK(syncs[2] == 2 * one_read);
}

TEST_CASE("trainers and generators of one model share its weights on the device; the plan counts them once") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  const size_t weights = model->store->device_bytes();
  Context ctx({.num_threads = 1, .backend = kDevice});
  const auto held = [&] { return ctx.backend().memory_use().now; };
  const auto training = [&] {
    AdapterSet a = random_adapters(c, {.r = 2});
    const size_t before = held();
    Trainer t(ctx, model, a, {.dtype = DType::f32}, 16);
    t.reserve();
    for (const MemoryLine& l : t.plan().lines)
      if (l.name == "weights") CHECK(l.bytes == weights);
    return held() - before;
  };
  const auto generating = [&] {
    AdapterSet a = random_adapters(c, {.r = 2});
    const size_t before = held();
    const Generator g(ctx, model, &a, DType::f32, 8);
    return held() - before;
  };
  for (const std::function<size_t()>& taken : {std::function<size_t()>(training), {generating}}) {
    const size_t alone = taken();
    const size_t before = held();
    {
      const auto copy = model->store->on(ctx.backend());
      CHECK(held() == before + weights);
      CHECK(taken() == alone - weights);
    }
    CHECK(held() == before);  // with the last who needs it
  }
}
