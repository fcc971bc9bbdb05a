// SPDX-License-Identifier: Apache-2.0
// A whole QLoRA step, its breakdown per op, and its share of the machine's measured arithmetic peak; the peak is
// measured between the steps of the same process, because shared machines drift.
//   bantam_step_bench [MODEL] [--tokens T] [--rank R] [--threads N] [--rounds N] [--checkpointing]
// Without a model: SmolLM2-135M's shape with random weights. What is counted: step_flops.h.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "finetune/train/trainer.h"
#include "peak.h"
#include "step_flops.h"
#include "tests/finetune/model_testing.h"

using namespace bantam;

namespace {

double seconds_of(const std::function<void()>& f) {
  const auto t0 = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  int64_t tokens = 1024, rank = 16, threads = 0, rounds = 3;
  bool checkpointing = false;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (!std::strcmp(argv[i], "--tokens"))
      tokens = value();
    else if (!std::strcmp(argv[i], "--rank"))
      rank = value();
    else if (!std::strcmp(argv[i], "--threads"))
      threads = value();
    else if (!std::strcmp(argv[i], "--rounds"))
      rounds = value();
    else if (!std::strcmp(argv[i], "--checkpointing"))
      checkpointing = true;
    else
      path = argv[i];
  }
  std::shared_ptr<const Model> model;
  if (path.empty())
    model = testing::tiny_model(testing::smollm2_135m());
  else
    model = load_model(path);
  Context ctx({.num_threads = static_cast<int>(threads)});
  AdapterSet adapters({.r = rank}, linear_modules(model->config), 1);
  auto samples = testing::random_samples(model->config, {static_cast<int>(tokens)});
  std::fill(samples[0].trained.begin() + 1, samples[0].trained.end(), 1);
  const StepBatch batch = make_step(samples, {{0}});
  TrainerOptions options;
  options.checkpointing.mode = checkpointing ? CheckpointMode::full : CheckpointMode::off;
  Trainer trainer(ctx, model, adapters, options, tokens);
  trainer.reserve();

  const double flops = step_flops(trainer.graph(), tokens, tokens);
  const Peak peak_run = peak_of(ctx.isa());
  const auto measure_peak = [&] {
    double done = 0;
    const double s = seconds_of([&] {
      ctx.pool().run([&](int t) {
        const double d = peak_run(20'000'000);
        if (t == 0) done = d * ctx.num_threads();
      });
    });
    return done / s;
  };
  trainer.train_step(batch, 0, 1e-4, 0);  // warm
  std::map<std::string, double> by_op;
  trainer.set_profile([&](const Instr& n, const Op& op, double s) {
    by_op[str(info(op.kind).name, n.recompute ? " again" : n.backward ? " backward" : "")] += s;
  });
  std::vector<double> steps, peaks;
  for (int64_t r = 0; r < rounds; ++r) {
    if (peak_run) peaks.push_back(measure_peak());
    steps.push_back(seconds_of([&] { trainer.train_step(batch, r + 1, 1e-4, 0); }));
    if (peak_run) peaks.push_back(measure_peak());
  }
  const double best = *std::min_element(steps.begin(), steps.end());
  std::printf("tier %s, %d threads, %lld tokens, rank %lld, checkpointing %s\n", name_of(ctx.isa()), ctx.num_threads(),
              static_cast<long long>(tokens), static_cast<long long>(rank), trainer.program().schedule.c_str());
  std::printf("step %.3f s best of %zu: %.1f tokens/s, %.1f GFLOP/s", best, steps.size(),
              static_cast<double>(tokens) / best, flops / best * 1e-9);
  if (peak_run) {
    const double peak = *std::max_element(peaks.begin(), peaks.end());
    std::printf(" = %.1f %% of the measured peak %.1f GFLOP/s", 100 * flops / best / peak, peak * 1e-9);
  }
  std::printf("\nmemory without weights: %s planned, %s measured\n", size_text(trainer.plan().anonymous()).c_str(),
              size_text(process_memory().anonymous).c_str());
  double sum = 0;
  for (const auto& [name, s] : by_op) sum += s;
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, s] : by_op) order.emplace_back(s, name);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [s, name] : order)
    std::printf("  %-24s %6.1f ms  %5.1f %%\n", name.c_str(), 1e3 * s / static_cast<double>(steps.size()),
                100 * s / sum);
  return 0;
}
