// SPDX-License-Identifier: Apache-2.0
// What must be equal to the bit: losses, gradients and adapters, whatever checkpointing, threads, chunk of the loss and
// repetition; and equal within rounding: packed and unpacked, batch and accumulation.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "finetune/train/trainer.h"
#include "model_testing.h"
#include "trace_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

struct Setting {
  CheckpointMode mode = CheckpointMode::off;
  int threads = 2;
  size_t chunk = size_t{128} << 20;
  DType dtype = DType::bf16;
  Isa isa = best_isa();
  std::vector<std::string> save = {};
  bool poison = false;
  double dropout = 0.1;  // 0: the lora_A of q, k, v and of gate, up are one product
};

Trace run(const Setting& s, int steps = 20) {
  const ModelConfig c = tiny_config();
  const auto model = tiny_model(c);
  LoraConfig lora{.r = 4, .lora_alpha = 8, .lora_dropout = s.dropout};
  AdapterSet adapters = random_adapters(c, lora);
  const auto samples = random_samples(c, {13, 7, 21, 2, 30, 9});
  Context ctx({.num_threads = s.threads, .isa = s.isa});
  Trainer t(ctx, model, adapters,
            {.dtype = s.dtype, .checkpointing = {s.mode, s.save}, .loss_chunk_bytes = s.chunk, .poison_dead = s.poison},
            64);
  Trace trace;
  for (int k = 0; k < steps; ++k) {
    const StepBatch batch = make_step(samples, {{k % 6, (k + 1) % 6}, {(k + 2) % 6}});
    const StepResult r = t.train_step(batch, k, 1e-3, static_cast<uint64_t>(k / 3));
    trace.add(r);
  }
  trace.finish(t);
  return trace;
}

}  // namespace

TEST_CASE("20 steps are equal under every checkpointing, thread count and loss chunk") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    const Trace base = run({.dtype = dtype});
    CHECK(base.losses.front() > 0);
    CHECK(base.losses.back() != base.losses.front());
    CHECK(run({.dtype = dtype}) == base);
    CHECK(run({.mode = CheckpointMode::full, .dtype = dtype}) == base);
    CHECK(run({.mode = CheckpointMode::selective, .dtype = dtype}) == base);
    CHECK(run({.mode = CheckpointMode::selective, .dtype = dtype, .save = {"attention", "mlp.gate_proj"}}) == base);
    CHECK(run({.mode = CheckpointMode::full, .dtype = dtype, .poison = true}) == base);
    CHECK(run({.mode = CheckpointMode::selective, .dtype = dtype, .poison = true}) == base);
    for (const int threads : {1, 3, 7}) CHECK(run({.threads = threads, .dtype = dtype}) == base);
    for (const size_t chunk : {size_t{1}, size_t{4096}}) CHECK(run({.chunk = chunk, .dtype = dtype}) == base);
  }
}

TEST_CASE("so they are without dropout, where linears of one input share a product") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    const Trace base = run({.dtype = dtype, .dropout = 0}, 6);
    CHECK(base != run({.dtype = dtype}, 6));
    for (const CheckpointMode mode : {CheckpointMode::full, CheckpointMode::selective})
      CHECK(run({.mode = mode, .threads = 3, .dtype = dtype, .poison = true, .dropout = 0}, 6) == base);
    CHECK(run({.mode = CheckpointMode::selective, .dtype = dtype, .save = {"self_attn.q_proj.lora"}, .dropout = 0},
              6) == base);
  }
}

TEST_CASE("each ISA tier equals itself under checkpointing and threads") {
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
    const Isa isa = static_cast<Isa>(i);
    CAPTURE(name_of(isa));
    const Trace base = run({.isa = isa}, 6);
    CHECK(run({.mode = CheckpointMode::full, .threads = 3, .isa = isa}, 6) == base);
  }
}

TEST_CASE("per-token losses are equal packed and unpacked, gradients within rounding") {
  const ModelConfig c = tiny_config(false);
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = 0.1});
  const auto samples = random_samples(c, {13, 1, 65, 2, 30});
  Context ctx({.num_threads = 2});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 200);
  std::vector<float> packed, alone, all_alone;
  t.evaluate(make_batch(samples, all_of(samples)), &packed);
  for (size_t s = 0; s < samples.size(); ++s) {
    t.evaluate(make_batch(samples, {static_cast<int32_t>(s)}), &alone);
    all_alone.insert(all_alone.end(), alone.begin(), alone.end());
  }
  CHECK(packed == all_alone);

  const StepBatch together = make_step(samples, {all_of(samples)});
  StepBatch apart = make_step(samples, {{0}, {1}, {2}, {3}, {4}});
  CHECK(together.total_weight == apart.total_weight);
  adapters.zero_grads();
  double a = 0, b = 0;
  for (const auto& m : together.micro) a += t.accumulate(m, 1 / together.total_weight, 0);
  const std::vector<float> g(adapters.grads().begin(), adapters.grads().end());
  adapters.zero_grads();
  for (const auto& m : apart.micro) b += t.accumulate(m, 1 / apart.total_weight, 0);
  CHECK(std::abs(a - b) <= 1e-12 * std::abs(a));
  double diff = 0, size = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    diff += std::pow(static_cast<double>(g[i]) - static_cast<double>(adapters.grads()[i]), 2);
    size += std::pow(static_cast<double>(g[i]), 2);
  }
  CHECK(size > 0);
  CHECK(std::sqrt(diff / size) < 1e-5);
}

TEST_CASE("rows in a pack do not see each other: a token that changes in one leaves the losses of the others") {
  const ModelConfig c = tiny_config(false);
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8});
  Context ctx({.num_threads = 2});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 200);
  auto samples = random_samples(c, {13, 40, 30});
  for (Sample& s : samples) std::fill(s.trained.begin() + 1, s.trained.end(), uint8_t{1});
  std::vector<float> before, after;
  t.evaluate(make_batch(samples, {0, 1, 2}), &before);
  REQUIRE(before.size() == 83);
  for (const size_t row : {0, 1, 2}) {
    CAPTURE(row);
    auto changed = samples;
    changed[row].ids[2] = (changed[row].ids[2] + 1) % static_cast<int32_t>(c.vocab_size);
    t.evaluate(make_batch(changed, {0, 1, 2}), &after);
    size_t at = 0;
    for (size_t r = 0; r < samples.size(); ++r) {
      bool same = true;
      for (size_t i = 0; i < samples[r].ids.size(); ++i, ++at) same = same && before[at] == after[at];
      CHECK(same == (r != row));
    }
    for (const float loss : after) CHECK(std::isfinite(loss));
  }
}

TEST_CASE("step loss is the sum over targets by the targets of the whole step") {
  // Micro-batches with 1 target and 3 targets: (l1 + l2 + l3 + l4) / 4, not a mean of means.
  const ModelConfig c = tiny_config();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 2});
  auto samples = random_samples(c, {5, 5});
  samples[0].trained = {0, 0, 0, 0, 1};
  samples[1].trained = {0, 1, 0, 1, 1};
  Context ctx({.num_threads = 1});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 10);
  std::vector<float> l0, l1;
  t.evaluate(make_batch(samples, {0}), &l0);
  t.evaluate(make_batch(samples, {1}), &l1);
  double sum = 0;
  for (const float x : l0) sum += static_cast<double>(x);
  for (const float x : l1) sum += static_cast<double>(x);
  CHECK(t.train_step(make_step(samples, {{0}, {1}}), 0, 0.0, 0).loss == doctest::Approx(sum / 4).epsilon(1e-12));
}

TEST_CASE("a step whose gradient is not finite changes nothing") {
  const ModelConfig c = tiny_config();
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, {.r = 2});
  adapters.values()[3] = INFINITY;
  const std::vector<float> before(adapters.values().begin(), adapters.values().end());
  const auto samples = random_samples(c, {9});
  Context ctx({.num_threads = 1});
  Trainer t(ctx, model, adapters, {.dtype = DType::f32}, 9);
  const StepResult r = t.train_step(make_step(samples, {{0}}), 0, 1e-3, 0);
  CHECK(r.skipped);
  CHECK(std::equal(before.begin(), before.end(), adapters.values().begin()));
  for (const float m : adapters.exp_avg()) CHECK(m == 0);
}
