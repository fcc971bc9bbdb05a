// SPDX-License-Identifier: Apache-2.0
#include "self_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "../../kernels/device_buffer.h"
#include "../../kernels/hash.h"
#include "../../kernels/product.h"
#include "synthetic.h"
#include "trainer.h"

namespace bantam {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// What a step gives may differ from the reference by this much, relatively: f32 by the order of its sums, bf16 by where
// values are rounded to 2^-8.
struct Tolerance {
  DType dtype;
  double loss, gradient;
};
constexpr Tolerance kTolerances[] = {{DType::f32, 2e-6, 2e-5}, {DType::bf16, 4e-3, 4e-2}};

ModelConfig small_shape() {
  ModelConfig c;
  c.model_type = "llama";
  c.vocab_size = 1000;
  c.hidden_size = 192;
  c.intermediate_size = 512;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 3;
  c.num_key_value_heads = 1;
  c.head_dim = 64;
  c.max_position_embeddings = 256;
  return c;
}

// Three packed sequences; the first half of each is not trained.
StepBatch some_batch(const ModelConfig& c) {
  std::vector<Sample> samples;
  for (const size_t length : {70, 33, 25}) {
    Sample& x = samples.emplace_back();
    x.id = samples.size();
    for (uint64_t i = 0; i < length; ++i)
      x.ids.push_back(static_cast<int32_t>(mix64(x.id * 1000 + i) % static_cast<uint64_t>(c.vocab_size)));
    x.trained.assign(length, 0);
    std::fill(x.trained.begin() + static_cast<std::ptrdiff_t>(length / 2), x.trained.end(), 1);
  }
  return make_step(samples, {{0, 1, 2}});
}

struct Outcome {
  double loss = 0;
  std::vector<float> gradients;
  bool operator==(const Outcome&) const = default;
};

Outcome run_step(Context& ctx, const std::shared_ptr<const Model>& model, DType dtype, CheckpointMode mode) {
  const ModelConfig& c = model->config;
  AdapterSet adapters({.r = 8, .lora_alpha = 16, .lora_dropout = 0.05}, linear_modules(c), 1);
  uint64_t n = 0;
  for (float& v : adapters.values()) v = static_cast<float>(uniform53(mix64(++n)) - 0.5) * 0.1f;
  const StepBatch batch = some_batch(c);
  Trainer trainer(ctx, model, adapters,
                  {.dtype = dtype,
                   .checkpointing = {mode, {}},
                   .loss_chunk_bytes = size_t{1} << 18,
                   .limit = MemoryLimit{},
                   .program_bytes = 1},
                  batch.micro[0].tokens());
  Outcome o;
  o.loss = trainer.train_step(batch, 0, 1e-4, 0).loss;
  trainer.fetch();
  o.gradients.assign(adapters.grads().begin(), adapters.grads().end());
  return o;
}

// Root of the squared distance over that of the squares; not a number where b is none.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double d = 0, n = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    d += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    n += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(d / n);
}

std::string compare(Context& ctx) {
  const auto model = synthetic_model(small_shape());
  Context reference({.num_threads = 1, .isa = Isa::scalar});
  std::string found;
  for (const Tolerance& t : kTolerances) {
    const Outcome expected = run_step(reference, model, t.dtype, CheckpointMode::off);
    const Outcome here = run_step(ctx, model, t.dtype, CheckpointMode::off);
    const double loss = std::abs(here.loss / expected.loss - 1),
                 gradient = distance(here.gradients, expected.gradients);
    char text[128];
    std::snprintf(text, sizeof text, "%s%s: loss off by %.1e, gradients by %.1e", found.empty() ? "" : "; ",
                  name_of(t.dtype), loss, gradient);
    found += text;
    if (!(loss <= t.loss) || !(gradient <= t.gradient)) {
      std::snprintf(text, sizeof text, ", expected at most %.0e and %.0e", t.loss, t.gradient);
      throw Error(ErrorCode::device, found + text);
    }
    if (!(run_step(ctx, model, t.dtype, CheckpointMode::full) == here))
      throw Error(ErrorCode::device, str(name_of(t.dtype), ": recomputing the layers changes the results"));
  }
  return found;
}

}  // namespace

SelfCheck self_check(Context& ctx) {
  SelfCheck r;
  const auto t0 = Clock::now();
  try {
    r.message = compare(ctx);
    r.good = true;
  } catch (const Error& e) {
    r.message = e.what();
  }
  r.seconds = seconds_since(t0);
  return r;
}

double product_rate(Context& ctx) {
  constexpr int64_t n = 1024;
  const Backend& backend = ctx.backend();
  const size_t bytes = static_cast<size_t>(n * n) * 2;
  DeviceBuffer memory(backend, 3 * bytes, "a product");
  backend.fill(memory.data(), 0, 3 * bytes);
  auto* at = static_cast<char*>(memory.data());
  const ConstTensorView a(at, DType::bf16, n, n), b(at + bytes, DType::bf16, n, n);
  const ProductArgs args{
      .terms = {{.a = a, .b = b}}, .c = TensorView(at + 2 * bytes, DType::bf16, n, n), .math = Math::bf16};
  const auto timed = [&](int times) {
    const auto t0 = Clock::now();
    for (int i = 0; i < times; ++i) product(ctx, args);
    if (backend.synchronize) backend.synchronize();
    return seconds_since(t0);
  };
  timed(1);
  double best = 1e30;
  for (int times = 1;; times *= 2) {
    const double s = timed(times);
    best = std::min(best, s / times);
    if (s > 0.2) break;
  }
  return 2.0 * n * n * n / best;
}

}  // namespace bantam
