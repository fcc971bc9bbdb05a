// SPDX-License-Identifier: Apache-2.0
// A training whose attention runs through cuDNN, on the emulated device: which device and version, the test's
// environment says. Recompute changes no bit, and the workspace that is planned is what is taken.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "finetune/train/trainer.h"
#include "kernels/backend.h"
#include "kernels/cudnn_shapes.h"
#include "model_testing.h"
#include "trace_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

constexpr int64_t kTokens = 32;  // of the largest micro-batch

unsigned long count(int what) {
  static const auto f = reinterpret_cast<unsigned long (*)(int)>(
      dlsym(dlopen(BANTAM_CUDA_ON_CPU, RTLD_NOW | RTLD_NOLOAD), "coc_cudnn_count"));
  REQUIRE((f != nullptr));
  return f(what);
}
enum { kForwards, kBackwards };

ModelConfig config() {
  ModelConfig c = tiny_config();
  c.num_hidden_layers = 2;
  c.head_dim = 16;
  return c;
}

struct Run {
  Trace trace;
  size_t planned = 0, taken = 0;
  unsigned long forwards = 0, backwards = 0;
};

Run train(const std::string& backend, CheckpointMode mode) {
  const ModelConfig c = config();
  AdapterSet adapters = random_adapters(c, {.r = 4, .lora_alpha = 8, .lora_dropout = 0.1});
  const auto samples = random_samples(c, {13, 7, 9, 3});
  Context ctx({.num_threads = 1, .backend = backend});
  const bool device = !ctx.backend().host_memory;
  Trainer t(ctx, tiny_model(c), adapters,
            {.dtype = DType::bf16, .checkpointing = {mode, {}}, .loss_chunk_bytes = size_t{1} << 16}, kTokens);
  t.reserve();
  Run r;
  if (device) {
    r.forwards = count(kForwards);
    r.backwards = count(kBackwards);
    setenv("COC_FAIL", "cudaMalloc:2", 1);  // from here on there is no memory to get
  }
  for (int k = 0; k < 2; ++k) {
    const StepResult s = t.train_step(make_step(samples, {{0, 1, 2, 3}, {k, 3}}), k, 1e-3, 0);
    r.trace.add(s);
  }
  r.trace.evaluated = t.evaluate(make_batch(samples, {0, 1, 2, 3})).loss;
  if (device) {
    unsetenv("COC_FAIL");
    r.forwards = count(kForwards) - r.forwards;
    r.backwards = count(kBackwards) - r.backwards;
    r.planned = t.training_plan().device_workspace;
    r.taken = ctx.backend().workspace_high();
  }
  r.trace.finish(t);
  return r;
}

}  // namespace

TEST_CASE("a training through cuDNN: every schedule has the same bits, and takes the workspace that was planned") {
  const Run off = train(BANTAM_CUDA_ON_CPU, CheckpointMode::off);
  // Two layers, two steps of two micro-batches, and an evaluation.
  CHECK(off.forwards == 2 * 5);
  CHECK(off.backwards == 2 * 4);
  // The backward's, the largest of all: dq, dk, dv of four heads of 16 and the sums of the softmax, for the class of
  // 32 tokens, and dout, to which LoRA adds in f32, as bf16.
  CHECK(off.planned == kCudnnTable + kCudnnEngine + 256 * (3 * 64 + 4) * sizeof(float) + kTokens * 64 * 2);
  for (const CheckpointMode mode : {CheckpointMode::off, CheckpointMode::full, CheckpointMode::selective}) {
    const Run r = train(BANTAM_CUDA_ON_CPU, mode);
    CHECK(r.trace == off.trace);
    CHECK(r.taken == r.planned);
    CHECK(r.planned == off.planned);
    CHECK(r.backwards == off.backwards);
    if (mode == CheckpointMode::full) CHECK(r.forwards > off.forwards);  // rebuilt the same way
  }
  // The numbers are the CPU's within what bf16 rounds.
  const Trace cpu = train("", CheckpointMode::off).trace;
  for (size_t k = 0; k < cpu.losses.size(); ++k) {
    CHECK(std::abs(off.trace.losses[k] / cpu.losses[k] - 1) <= 4e-3);
    CHECK(std::abs(off.trace.norms[k] / cpu.norms[k] - 1) <= 4e-2);
  }
}
