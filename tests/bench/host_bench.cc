// SPDX-License-Identifier: Apache-2.0
// What the host does in a step beside the ops: on a device it must stay below what the ops take there, or the device
// waits. Steps run on a backend whose ops do nothing (null_backend.cc).
//   bantam_host_bench [--layers N] [--tokens T] [--checkpointing]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "finetune/train/trainer.h"
#include "tests/finetune/model_testing.h"

using namespace bantam;

int main(int argc, char** argv) {
  int layers = 32, tokens = 2048;
  bool checkpointing = false;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::atoi(argv[++i]) : 0; };
    if (!std::strcmp(argv[i], "--layers"))
      layers = value();
    else if (!std::strcmp(argv[i], "--tokens"))
      tokens = value();
    else if (!std::strcmp(argv[i], "--checkpointing"))
      checkpointing = true;
  }
  ModelConfig c = testing::tiny_config();  // sizes do not matter: nothing is computed
  c.num_hidden_layers = layers;
  c.head_dim = 128;
  c.max_position_embeddings = tokens;
  const auto model = testing::tiny_model(c);
  AdapterSet adapters({.r = 16}, linear_modules(c), 1);
  Context ctx({.num_threads = 1, .backend = BANTAM_NULL_BACKEND});
  TrainerOptions options;
  options.checkpointing.mode = checkpointing ? CheckpointMode::full : CheckpointMode::off;
  Trainer trainer(ctx, model, adapters, options, tokens);
  trainer.reserve();
  const auto samples = testing::random_samples(c, {tokens});
  const StepBatch batch = make_step(samples, {{0}});
  std::vector<double> seconds;
  for (int i = 0; i < 20; ++i) {
    const auto t0 = std::chrono::steady_clock::now();
    trainer.train_step(batch, i, 1e-4, 0);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
  std::sort(seconds.begin(), seconds.end());
  StepBuffers buffers(ctx.backend(), c, tokens);
  double fill = 0;
  for (int i = 0; i < 2; ++i) {  // the first also makes the rope table
    const auto t0 = std::chrono::steady_clock::now();
    buffers.fill(batch.micro[0], 1, 1, 0, true);
    fill = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  }
  const auto ops = static_cast<double>(trainer.program().instrs.size());
  std::printf(
      "%d layers, %d tokens, %.0f ops: %.2f ms a step in the median, %.2f ms best; step constants %.2f ms; %.2f us an "
      "op\n",
      layers, tokens, ops, seconds[10] * 1e3, seconds[0] * 1e3, fill * 1e3, (seconds[0] - fill) / ops * 1e6);
  return 0;
}
