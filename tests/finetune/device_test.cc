// SPDX-License-Identifier: Apache-2.0
// Training and generation on a backend with memory of its own: the CUDA sources on the emulated device, or the library
// that BANTAM_TEST_BACKEND names. The same graph, arena and schedules as on the CPU; numbers within rounding of the
// CPU's, and equal among themselves.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "finetune/train/generator.h"
#include "finetune/train/trainer.h"
#include "model_testing.h"

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

Trace train(const std::string& backend, DType dtype, const CheckpointPolicy& policy, bool poison = false) {
  const ModelConfig c = small();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = 0.1});
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

}  // namespace

TEST_CASE("a training on the device has the CPU's numbers within rounding") {
  // f32: sums in another order. bf16: operands of products and activations are rounded to 2^-8 in both, at other
  // places.
  for (const auto& [dtype, loss, gradient] : {std::tuple{DType::f32, 2e-6, 2e-5}, {DType::bf16, 4e-3, 4e-2}}) {
    const Trace cpu = train("", dtype, {CheckpointMode::off, {}}),
                device = train(kDevice, dtype, {CheckpointMode::off, {}});
    CAPTURE(name_of(dtype));
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

TEST_CASE("on the device too, checkpointing changes no bit, and a repeated run none") {
  const Trace base = train(kDevice, DType::bf16, {CheckpointMode::off, {}});
  CHECK(train(kDevice, DType::bf16, {CheckpointMode::off, {}}) == base);
  for (const CheckpointPolicy& p :
       {CheckpointPolicy{CheckpointMode::full, {}}, CheckpointPolicy{CheckpointMode::selective, {}},
        CheckpointPolicy{CheckpointMode::every_n, {}, 2}})
    CHECK(train(kDevice, DType::bf16, p) == base);
  CHECK(train(kDevice, DType::bf16, {CheckpointMode::full, {}}, true) == base);  // dead ranges filled with NaN
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
