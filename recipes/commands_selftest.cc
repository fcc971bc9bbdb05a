// SPDX-License-Identifier: Apache-2.0
// Does checkpointing change anything on this model, these data, this machine? Runs the same few steps under several
// schedules and compares to the bit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../kernels/hash.h"
#include "commands.h"
#include "planning.h"

namespace bantam {

namespace {

struct Outcome {
  std::string name;
  size_t planned = 0, measured = 0;  // bytes of the activations
  double planned_overhead = 0, seconds = 0;
  std::vector<double> losses;
  uint64_t gradients = 0, adapters = 0;  // hashes, after the last step
  bool equal(const Outcome& o) const {
    return losses == o.losses && gradients == o.gradients && adapters == o.adapters;
  }
};

uint64_t hash_of(std::span<const float> v) {
  return fnv1a(v.data(), v.size_bytes());
}

Outcome run(const Session& s, const Recipe& recipe, const Planned& planned, const PlannedSchedule& schedule,
            const std::string& name, int64_t steps) {
  Outcome r{.name = name, .planned = std::max(schedule.program.peak, planned.plan.evaluation.peak)};
  AdapterSet adapters(s.lora, s.modules, static_cast<uint64_t>(recipe.seed));
  TrainerOptions o = s.options.trainer;
  o.schedule = schedule.schedule;
  o.limit = MemoryLimit{};
  Trainer trainer(*s.context, s.model, adapters, o, planned.request.max_tokens);
  adapters.move_to(s.context->backend());
  const size_t before = trainer.memory_bytes();
  trainer.reserve();
  r.measured = trainer.memory_bytes() - std::min(before, trainer.memory_bytes());
  const EpochPlan epoch = plan_epoch(s.train.samples, s.options.batches, 0, s.train.source_weights);
  for (int64_t k = 0; k < steps; ++k) {
    const StepBatch batch = make_step(s.train.samples, epoch.step(k % epoch.steps()));
    const auto t0 = std::chrono::steady_clock::now();
    r.losses.push_back(trainer.train_step(batch, k, s.options.lr.learning_rate, 0).loss);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    if (k > 0 || steps == 1) r.seconds += seconds;  // the first step also warms up
  }
  r.seconds /= static_cast<double>(std::max<int64_t>(1, steps - 1));
  trainer.fetch();
  r.gradients = hash_of(std::as_const(adapters).grads());
  r.adapters = hash_of(std::as_const(adapters).values());
  return r;
}

}  // namespace

int selftest_command(const Recipe& recipe, const SelftestCommandOptions& options) {
  Session s = open_session(recipe, options.common);
  const Planned planned = make_plan(s, recipe, {});
  require_fit(planned);
  load_weights(s, recipe, options.common);
  s.adapters.reset();                                             // each run has its own
  const auto weights = s.model->store->on(s.context->backend());  // the runs share the copy on a device

  const SchedulePlanner planner(planned.graph, planned.costs,
                                {.max_tokens = planned.request.max_tokens,
                                 .loss_chunk_bytes = planned.request.loss_chunk_bytes,
                                 .sequence = planned.request.sequence},
                                offload_options(planned.request, planned.plan));
  const MemoryPlan& plan = planned.plan.memory;
  const PlannedSchedule none = planner.fixed({CheckpointMode::off, {}}),
                        full = planner.fixed({CheckpointMode::full, {}});
  const size_t room = plan.limit.bytes > 0 ? plan.limit.bytes - (plan.need() - planned.plan.arena()) : SIZE_MAX;
  std::vector<std::pair<std::string, PlannedSchedule>> schedules;
  const auto add = [&](const std::string& name, const PlannedSchedule& schedule) {
    if (schedule.program.peak <= room)
      schedules.emplace_back(name, schedule);
    else
      std::fprintf(stderr, "%s does not fit, %s of activations: left out\n", name.c_str(),
                   size_text(schedule.program.peak).c_str());
  };
  add("none", none);
  add("true", full);
  if (planned.request.checkpointing.offload_inputs)
    add("true, offloaded", planner.fixed({.mode = CheckpointMode::full, .offload_inputs = true}));
  for (const int share : {75, 50, 25})
    if (const auto a = planner.automatic(budget_between(full, none, share))) add(str("auto at ", share, " %"), *a);
  if (schedules.size() < 2) add("this plan", planned.plan.training);
  std::vector<Outcome> all;
  bool equal = true;
  for (const auto& [name, schedule] : schedules) {
    if (!options.common.quiet)
      std::fprintf(stderr, "%lld steps, checkpointing: %s\n", static_cast<long long>(options.steps), name.c_str());
    all.push_back(run(s, recipe, planned, schedule, name, options.steps));
    all.back().planned_overhead = schedule.cost.total() / schedules[0].second.cost.total() - 1;
    equal = equal && all.back().equal(all[0]);
  }
  if (options.common.json) {
    nlohmann::ordered_json j;
    j["equal"] = equal;
    for (const Outcome& o : all)
      j["runs"].push_back({{"name", o.name},
                           {"equal", o.equal(all[0])},
                           {"losses", o.losses},
                           {"planned_bytes", o.planned},
                           {"measured_bytes", o.measured},
                           {"seconds_per_step", o.seconds},
                           {"planned_overhead", o.planned_overhead},
                           {"measured_overhead", o.seconds / all[0].seconds - 1}});
    std::printf("%s\n", j.dump(2).c_str());
  } else {
    std::printf(
        "checkpointing     loss after %lld steps   results    activations: planned   measured   time: planned   "
        "measured\n",
        static_cast<long long>(options.steps));
    for (const Outcome& o : all)
      std::printf("%-16s %20.9f   %-9s %20s %10s %+14.1f %% %+9.1f %%\n", o.name.c_str(), o.losses.back(),
                  o.equal(all[0]) ? "equal" : "DIFFERENT", size_text(o.planned).c_str(), size_text(o.measured).c_str(),
                  100 * o.planned_overhead, 100 * (o.seconds / all[0].seconds - 1));
    std::printf(equal ? "losses, gradients and adapters are equal to the bit\n"
                      : "checkpointing changed the results: this is a bug, please report it with the recipe\n");
  }
  return equal ? 0 : 9;
}

}  // namespace bantam
