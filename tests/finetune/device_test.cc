// SPDX-License-Identifier: Apache-2.0
// Training and generation on a backend with memory of its own: the CUDA sources on the emulated device, or the library
// that BANTAM_TEST_BACKEND names. The same graph, arena and schedules as on the CPU; numbers within rounding of the
// CPU's, and equal among themselves.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>

#include "finetune/train/generator.h"
#include "finetune/train/run.h"
#include "finetune/train/trainer.h"
#include "kernels/device_scratch.h"
#include "kernels/error.h"
#include "model_testing.h"
#include "temp_dir.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

struct Trace {
  std::vector<double> losses, norms;
  std::vector<float> values, grads;
  double evaluated = 0;
  bool operator==(const Trace&) const = default;
};

ModelConfig small() {
  ModelConfig c = tiny_config();
  c.num_hidden_layers = 2;
  return c;
}

Trace train(const std::string& backend, DType dtype, const CheckpointPolicy& policy, bool poison = false,
            double dropout = 0.1) {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = dropout});
  const auto samples = random_samples(c, {13, 7, 9, 2});
  Context ctx({.num_threads = 1, .backend = backend});
  Trainer t(ctx, model, adapters,
            {.dtype = dtype, .checkpointing = policy, .loss_chunk_bytes = size_t{1} << 16, .poison_dead = poison}, 32);
  Trace trace;
  for (int k = 0; k < 3; ++k) {
    const StepBatch batch = make_step(samples, {{k % 4, (k + 1) % 4}, {(k + 2) % 4}});
    const StepResult r = t.train_step(batch, k, 1e-3, 0);
    trace.losses.push_back(r.loss);
    trace.norms.push_back(r.grad_norm);
  }
  trace.evaluated = t.evaluate(make_batch(samples, {0, 1})).loss;
  t.fetch();
  trace.values.assign(adapters.values().begin(), adapters.values().end());
  trace.grads.assign(adapters.grads().begin(), adapters.grads().end());
  return trace;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double d = 0, n = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    d += std::pow(static_cast<double>(a[i]) - b[i], 2);
    n += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(d / n);
}

const std::string kDevice =
    std::getenv("BANTAM_TEST_BACKEND") ? std::getenv("BANTAM_TEST_BACKEND") : BANTAM_CUDA_ON_CPU;

// How many calls so far waited for the device, or might have on a real one.
unsigned long sync_count() {
  static const auto count =
      reinterpret_cast<unsigned long (*)()>(dlsym(dlopen(kDevice.c_str(), RTLD_NOW | RTLD_NOLOAD), "coc_sync_count"));
  REQUIRE((count != nullptr));
  return count();
}
// How many of the calls that f makes do.
unsigned long waits(const std::function<void()>& f) {
  const unsigned long before = sync_count();
  f();
  return sync_count() - before;
}

}  // namespace

TEST_CASE("a training on the device has the CPU's numbers within rounding") {
  // f32: sums in another order. bf16: operands of products and activations are rounded to 2^-8 in both, at other
  // places.
  for (const auto& [dtype, dropout, loss, gradient] : {std::tuple{DType::f32, 0.0, 2e-6, 2e-5},
                                                       {DType::f32, 0.1, 2e-6, 2e-5},
                                                       {DType::bf16, 0.0, 4e-3, 4e-2},
                                                       {DType::bf16, 0.1, 4e-3, 4e-2}}) {
    const Trace cpu = train("", dtype, {CheckpointMode::off, {}}, false, dropout),
                device = train(kDevice, dtype, {CheckpointMode::off, {}}, false, dropout);
    CAPTURE(name_of(dtype));
    CAPTURE(dropout);
    for (size_t k = 0; k < cpu.losses.size(); ++k) {
      CHECK(std::abs(device.losses[k] / cpu.losses[k] - 1) <= loss);
      CHECK(std::abs(device.norms[k] / cpu.norms[k] - 1) <= gradient);
    }
    CHECK(std::abs(device.evaluated / cpu.evaluated - 1) <= loss);
    CHECK(distance(device.grads, cpu.grads) <= gradient);
    CHECK(distance(device.values, cpu.values) <= gradient);
    CHECK(device.losses[0] != device.losses[2]);  // it moves
  }
}

TEST_CASE("step constants on the device are the host's, whatever positions came before") {
  const ModelConfig c = small();
  const Context ctx({.num_threads = 1, .backend = kDevice});
  StepBuffers cpu(cpu_backend(), c, 32), device(ctx.backend(), c, 32);
  const auto samples = random_samples(c, {5, 30, 13, 9, 32});
  const auto equal = [&](const ConstTensorView& d, const ConstTensorView& h) {
    std::vector<float> got(static_cast<size_t>(d.rows * d.cols));
    ctx.backend().download(got.data(), d.data, got.size() * sizeof(float));
    return std::equal(got.begin(), got.end(), h.row<float>(0), h.row<float>(0) + h.rows * h.cols);
  };
  const auto check = [&](const StepInputs& d, const StepInputs& h) {
    CHECK(equal(d.cos, h.cos));
    CHECK(equal(d.sin, h.sin));
  };
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{0}, {2, 3}, {1}, {0, 2}, {4}}) {
    const Batch b = make_batch(samples, rows);
    check(device.fill(b, 1, 1, 0, true), cpu.fill(b, 1, 1, 0, true));
  }
  for (const int64_t start : {0, 7, 31, 32, 1000}) {  // generation goes beyond
    const std::vector<int32_t> ids = {1, 2, 3};
    check(device.fill_tokens(ids, start), cpu.fill_tokens(ids, start));
  }
}

TEST_CASE("adapters on some linears only: the device has the CPU's losses and gradients") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  const StepBatch batch = make_step(random_samples(c, {13, 7}), {{0, 1}});
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj", "v_proj"}, {"k_proj", "up_proj"}, {"v_proj"}, {"gate_proj", "down_proj"}}) {
    CAPTURE(targets[0]);
    const auto run = [&](const std::string& backend) {
      std::vector<AdapterSet::Module> modules;
      for (const auto& m : linear_modules(c))
        if (std::any_of(targets.begin(), targets.end(), [&](const std::string& t) { return m.path.ends_with(t); }))
          modules.push_back(m);
      AdapterSet adapters({.r = 3, .lora_alpha = 8}, modules, 7);
      std::mt19937 rng(3);
      const auto values = random_values(adapters.size(), 0.1, rng);
      std::copy(values.begin(), values.end(), adapters.values().begin());
      Context ctx({.num_threads = 1, .backend = backend});
      Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 32);
      const double loss = t.train_step(batch, 0, 1e-3, 0).loss;
      t.fetch();
      return std::pair(loss, std::vector<float>(adapters.grads().begin(), adapters.grads().end()));
    };
    const auto cpu = run(""), device = run(kDevice);
    CHECK(std::abs(device.first / cpu.first - 1) <= 2e-6);
    CHECK(distance(device.second, cpu.second) <= 2e-5);
  }
}

TEST_CASE("on the device too, checkpointing changes no bit, and a repeated run none") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    const Trace base = train(kDevice, dtype, {CheckpointMode::off, {}});
    CHECK(train(kDevice, dtype, {CheckpointMode::off, {}}) == base);
    for (const CheckpointPolicy& p :
         {CheckpointPolicy{CheckpointMode::full, {}}, CheckpointPolicy{CheckpointMode::selective, {}},
          CheckpointPolicy{CheckpointMode::every_n, {}, 2}})
      CHECK(train(kDevice, dtype, p) == base);
    CHECK(train(kDevice, dtype, {CheckpointMode::full, {}}, true) == base);  // dead ranges filled with NaN
    // Without dropout the lora_A of q, k, v and of gate, up are one product.
    CHECK(train(kDevice, dtype, {CheckpointMode::full, {}}, true, 0) ==
          train(kDevice, dtype, {CheckpointMode::off, {}}, false, 0));
  }
}

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
      trace.losses.push_back(r.loss);
      trace.norms.push_back(r.grad_norm);
    }
    trace.evaluated = trainer->evaluate(make_batch(samples, {0, 1, 2, 3})).loss;
    unsetenv("COC_FAIL");
    CHECK(ctx.backend().memory_use().pinned == pinned);
    decodes = ctx.backend().weights_decoded(false) - before;
    ahead = ctx.backend().weights_decoded(true) - before_ahead;
    trainer->fetch();
    trace.values.assign(adapters.values().begin(), adapters.values().end());
    trace.grads.assign(adapters.grads().begin(), adapters.grads().end());
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

TEST_CASE("losses of more micro-batches than fit on the device add up in order") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  for (const std::string& backend : {std::string(), kDevice}) {
    CAPTURE(backend);
    AdapterSet adapters = random_adapters(c, {.r = 2});
    const auto samples = random_samples(c, {13, 7, 9, 2});
    Context ctx({.num_threads = 1, .backend = backend});
    Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 13);
    double apart = 0;
    t.begin_step();
    for (int k = 0; k < 50; ++k) {
      const Batch b = make_batch(samples, {k % 4});
      apart += t.accumulate(b, 1, 0);
      t.accumulate_async(b, 1, 0);
    }
    CHECK(t.take_losses() == apart);
    t.accumulate_async(make_batch(samples, {0}), 1, 0);
    t.begin_step();
    CHECK(t.take_losses() == 0);
  }
}

TEST_CASE("a gradient that is not finite changes nothing on the device, and the step says so") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 2});
  adapters.values()[3] = INFINITY;
  const std::vector<float> before(adapters.values().begin(), adapters.values().end());
  const auto samples = random_samples(c, {9});
  Context ctx({.num_threads = 1, .backend = kDevice});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 9);
  const StepResult r = t.train_step(make_step(samples, {{0}}), 0, 1e-3, 0);
  CHECK(r.skipped);
  t.fetch();
  CHECK(std::equal(before.begin(), before.end(), adapters.values().begin()));
  for (const float m : adapters.exp_avg()) CHECK(m == 0);
}

TEST_CASE("ids and labels outside the vocabulary are refused before anything runs, on every backend") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  for (const std::string& backend : {std::string(), kDevice}) {
    CAPTURE(backend);
    AdapterSet adapters = random_adapters(c, {.r = 2});
    const auto samples = random_samples(c, {9, 5});
    Context ctx({.num_threads = 1, .backend = backend});
    Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 14);
    Generator g(ctx, model, &adapters, DType::f32, 20);
    for (const int32_t bad : {97, -1}) {
      Batch ids = make_batch(samples, {0, 1}), labels = ids;
      ids.ids[11] = bad;
      labels.labels[12] = bad;
      const std::string want_id =
          str("micro-batch: position 11: token id ", bad, ", but the table has 97 rows (expected 0 to 96)");
      const std::string want_label =
          str("micro-batch: the label of row 12 of 14 is ", bad, ", expected 0 .. 96 (a vocabulary of 97) or -100");
      CHECK_THROWS_WITH_AS(t.accumulate(ids, 1, 0), want_id.c_str(), Error);
      CHECK_THROWS_WITH_AS(t.accumulate_async(ids, 1, 0), want_id.c_str(), Error);
      CHECK_THROWS_WITH_AS(t.evaluate(ids), want_id.c_str(), Error);
      CHECK_THROWS_WITH_AS(t.accumulate(labels, 1, 0), doctest::Contains(want_label.c_str()), Error);
      CHECK_THROWS_WITH_AS(t.evaluate(labels), doctest::Contains(want_label.c_str()), Error);
      const std::vector<int32_t> prompt = {3, bad, 5};
      const std::string want_token =
          str("generation: position 1: token id ", bad, ", but the table has 97 rows (expected 0 to 96)");
      CHECK_THROWS_WITH_AS(g.append(prompt), want_token.c_str(), Error);
      CHECK_THROWS_WITH_AS(g.logits(prompt), want_token.c_str(), Error);
      CHECK(g.length() == 0);
    }
  }
}

TEST_CASE("generation on the device: the cache equals the whole sequence, logits as the CPU's") {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back((i * 31 + 7) % 97);
  const auto logits = [&](const std::string& backend) {
    AdapterSet adapters = random_adapters(c, {.r = 4});
    Context ctx({.num_threads = 1, .backend = backend});
    Generator g(ctx, model, &adapters, DType::f32, 40);
    const Tensor all = g.logits(prompt);
    std::vector<float> out(all.data<float>(), all.data<float>() + 20 * c.vocab_size);
    g.reset();
    std::span<const float> last;
    for (const int32_t id : prompt) last = g.append({&id, 1});
    CHECK(distance({last.begin(), last.end()}, {out.end() - c.vocab_size, out.end()}) <= 1e-6);
    return out;
  };
  CHECK(distance(logits(kDevice), logits("")) <= 1e-5);
}

TEST_CASE("emulation: memory that the device has not is an error in words") {
  setenv("COC_FAIL", "cudaMalloc:2", 1);
  CHECK_THROWS_WITH_AS(train(kDevice, DType::f32, {CheckpointMode::full, {}}), doctest::Contains("cannot reserve"),
                       Error);
  unsetenv("COC_FAIL");
}
