// SPDX-License-Identifier: Apache-2.0
// Training and generation on a backend with memory of its own (device_testing.h): the same graph, arena and schedules
// as on the CPU; numbers within rounding of the CPU's, and equal among themselves.
#include <algorithm>

#include "device_testing.h"
#include "finetune/train/generator.h"
#include "kernels/error.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

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
    trace.add(r);
  }
  trace.evaluated = t.evaluate(make_batch(samples, {0, 1})).loss;
  trace.finish(t);
  return trace;
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
