// SPDX-License-Identifier: Apache-2.0
// Layer inputs in host memory: on the emulated device (or the library that BANTAM_TEST_BACKEND names) they change no
// bit, nothing waits for them but the ops that need them, and what was planned is what is taken.
#include <algorithm>
#include <cstdlib>

#include "device_testing.h"
#include "finetune/train/calibrate.h"
#include "kernels/error.h"
#include "schedule_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

const LoraConfig kLora{.r = 2, .lora_alpha = 4, .lora_dropout = 0.1};

struct Run {
  ModelConfig config;
  std::vector<Sample> samples = random_samples(config, {4, 2, 2, 3});
  AdapterSet adapters = random_adapters(config, kLora);
  Context ctx{{.num_threads = 1, .backend = kDevice}};
  Trainer trainer;

  Run(const std::shared_ptr<Model>& model, TrainerOptions options)
      : config(model->config), trainer(ctx, model, adapters, with_small_chunk(options), 6) {}
  static TrainerOptions with_small_chunk(TrainerOptions o) {
    o.loss_chunk_bytes = size_t{1} << 14;
    return o;
  }
  // Two steps, the first of two micro-batches of different sizes, and an evaluation.
  Trace run() {
    Trace trace;
    for (int k = 0; k < 2; ++k) {
      const StepBatch batch = k == 0 ? make_step(samples, {{0, 2}, {1}}) : make_step(samples, {{3, 1}});
      const StepResult r = trainer.train_step(batch, k, 1e-2, 0);
      trace.add(r);
    }
    trace.evaluated = trainer.evaluate(make_batch(samples, {0, 1})).loss;
    trace.finish(trainer);
    return trace;
  }
};

}  // namespace

namespace {

// Equal to `base`, with dead ranges filled with NaN: three layers, dropout, several micro-batches.
void check_equal(const std::shared_ptr<Model>& model, const Trace& base, DType dtype, const CheckpointPolicy& policy,
                 size_t inputs) {
  Run r(model, {.dtype = dtype, .checkpointing = policy, .poison_dead = true});
  CHECK(r.trainer.program().host.size() == inputs);
  CHECK(r.run() == base);
}

}  // namespace

// Under each order of the streams.
TEST_CASE("offloaded: losses, gradients and adapters are equal") {
  const auto model = tiny_model(small(3));
  const Trace base = Run(model, {.dtype = DType::bf16, .checkpointing = {CheckpointMode::off, {}}}).run();
  REQUIRE(base.losses[0] > 0);
  check_equal(model, base, DType::bf16, {.mode = CheckpointMode::full, .offload_inputs = true}, 3);
  const AdapterSet shapes = AdapterSet::shapes(kLora, linear_modules(model->config));
  const ModelGraph g = build_model_graph(model->config, DType::bf16, &shapes);
  for (const unsigned seed : {1, 4}) {
    CAPTURE(seed);
    const Schedule s = RandomSchedule(g, seed, true).draw();
    CHECK(offloaded_inputs(s) > 0);
    CHECK(Run(model, {.dtype = DType::bf16, .schedule = s}).run() == base);
  }
}

TEST_CASE("inputs in host memory: numbers are equal in f32 too, under other policies and other schedules") {
  const auto model = tiny_model(small(3));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(dtype));
    const Trace base = Run(model, {.dtype = dtype, .checkpointing = {CheckpointMode::off, {}}}).run();
    if (dtype == DType::f32) {
      check_equal(model, base, dtype, {.mode = CheckpointMode::full, .offload_inputs = true}, 3);
      continue;
    }
    check_equal(model, base, dtype, {.mode = CheckpointMode::off, .offload_inputs = true}, 3);
    check_equal(model, base, dtype, {.mode = CheckpointMode::every_n, .every_n = 2, .offload_inputs = true}, 2);
    const AdapterSet shapes = AdapterSet::shapes(kLora, linear_modules(model->config));
    const ModelGraph g = build_model_graph(model->config, dtype, &shapes);
    for (unsigned seed = 10; seed < 13; ++seed) {
      CAPTURE(seed);
      CHECK(Run(model, {.dtype = dtype, .schedule = RandomSchedule(g, seed, true).draw(), .poison_dead = true}).run() ==
            base);
    }
  }
}

TEST_CASE(
    "inputs in host memory: bytes of host and device are those that were planned, and no step waits or allocates") {
  const ModelConfig c = small(4);
  const auto model = tiny_model(c);
  const auto weights = [&] {  // so that both trainers find them there
    Context ctx({.num_threads = 1, .backend = kDevice});
    return model->store->on(ctx.backend());
  }();
  size_t taken[2], planned[2], arena[2];
  for (const bool offload : {false, true}) {
    Run r(model, {.dtype = DType::f32,
                  .checkpointing = {.mode = CheckpointMode::full, .offload_inputs = offload},
                  .decoded_weight_bytes = 0});
    const Backend& backend = r.ctx.backend();
    const MemoryPlan& plan = r.trainer.plan();
    CHECK(backend.memory_use().pinned == 0);
    const size_t before = r.trainer.memory_bytes();
    r.trainer.reserve();
    taken[offload] = r.trainer.memory_bytes() - before;
    planned[offload] = plan.total();
    arena[offload] = r.trainer.training_plan().arena();
    CHECK(backend.memory_use().pinned == plan.host());
    CHECK(plan.host() == r.trainer.training_plan().staging + (offload ? 4 * size_t{6 * 32 * 4} : 0));
    CHECK(plan.offloaded_inputs == (offload ? 4 : 0));
    CHECK((plan.lines.back().name == "offloaded layer inputs") == offload);

    const StepBatch batch = make_step(r.samples, {{0, 2}, {3, 1}});  // as far as the host is ahead of a device
    r.trainer.train_step(batch, 0, 1e-2, 0);
    const size_t after = r.trainer.memory_bytes();
    r.trainer.begin_step();
    const unsigned long waits = sync_count();  // allocations count as well
    for (const Batch& b : batch.micro) r.trainer.accumulate_async(b, 1 / batch.total_weight, 0);
    CHECK(sync_count() == waits);
    CHECK(r.trainer.take_losses() > 0);
    CHECK(r.trainer.memory_bytes() == after);
    CHECK(backend.memory_use().pinned == plan.host());
  }
  CHECK(arena[true] < arena[false]);
  CHECK(taken[false] - taken[true] == arena[false] - arena[true]);
  CHECK(planned[false] - planned[true] == arena[false] - arena[true]);
}

TEST_CASE("inputs in host memory: where there is nothing to copy to it is refused, and where the host has no room") {
  const ModelConfig c = small(2);
  const auto model = tiny_model(c);
  AdapterSet adapters = random_adapters(c, kLora);
  Context cpu({.num_threads = 1});
  const char* const words = "activation_offloading: found true, but device cpu computes in host memory itself";
  TrainerOptions o{.dtype = DType::f32, .checkpointing = {.mode = CheckpointMode::full, .offload_inputs = true}};
  CHECK_THROWS_WITH_AS(Trainer(cpu, model, adapters, o, 9), words, Error);
  const AdapterSet shapes = AdapterSet::shapes(kLora, linear_modules(c));
  o.schedule = training_schedule(build_model_graph(c, DType::f32, &shapes), o.checkpointing);
  o.checkpointing = {};
  CHECK_THROWS_WITH_AS(Trainer(cpu, model, adapters, o, 9), words, Error);

  o.host_limit = 1000;
  Run tight(model, o);
  CHECK_FALSE(tight.trainer.plan().fits());
  CHECK_THROWS_WITH_AS(tight.trainer.reserve(),
                       "host memory: the inputs of 2 layers take 1.50 KiB, with the staging of uploads 6.50 KiB, 5.52 "
                       "KiB more than the 1000 B that are free",
                       Error);
  o.schedule.reset();
  CHECK(Run(model, o).trainer.plan().fits());  // what nobody offloads needs no room
  o.checkpointing = {.mode = CheckpointMode::full, .offload_inputs = true};
  setenv("COC_FAIL", "cudaMallocHost:2", 1);
  o.host_limit.reset();
  Run none(model, o);
  CHECK_THROWS_WITH_AS(none.trainer.reserve(),
                       doctest::Contains("bytes of pinned host memory for offloaded layer inputs"), Error);
  unsetenv("COC_FAIL");
}

TEST_CASE("rates of copies to the host and back are measured on a device, and not on the CPU") {
  const CalibrationShape shape{small(2), DType::f32, {.r = 2}, 16, 1 << 16};
  for (const std::string& backend : {std::string(), kDevice}) {
    Context ctx({.num_threads = 1, .backend = backend});
    const CostModel m = calibrate(ctx, shape);
    for (const bool out : {false, true}) {
      if (backend.empty())
        CHECK_THROWS_WITH_AS(m.seconds_per_host_byte(out), doctest::Contains("no measured rate"), Error);
      else
        CHECK((m.seconds_per_host_byte(out) > 0 && m.seconds_per_host_byte(out) < 1e-6));
    }
  }
  CHECK(CostModel::assume(1e12).seconds_per_host_byte(true) == CostModel::kFlopsPerHostByte / 1e12);
}
