// SPDX-License-Identifier: Apache-2.0
#include "planning.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../finetune/recompute/schedule_text.h"
#include "../finetune/train/calibrate.h"
#include "../kernels/backend.h"
#include "../kernels/error.h"
#include "key_table.h"

namespace bantam {

namespace {

using nlohmann::ordered_json;

constexpr size_t kShapeOnlyProgram = size_t{16} << 20;  // a process that holds no data

// The settings that a schedule was planned with; a resumed run takes it when they are the same.
std::string planned_with(const Recipe& r) {
  std::string out;
  for (const char* name :
       {"gradient_checkpointing", "selective_checkpointing", "memory_limit", "loss_chunk_bytes", "on_does_not_fit"}) {
    const KeySpec& key = *find_key(name);
    out += str(name, ": ", format_value(key, key.get(r, key)), "\n");
  }
  if (r.activation_offloading) out += "activation_offloading: true\n";  // plans of before it was there stay good
  return out;
}

struct Earlier {
  std::optional<Schedule> schedule;
  int64_t micro_batch_size = 0, gradient_accumulation_steps = 0;
  size_t loss_chunk_bytes = 0;
};

std::optional<Earlier> earlier_plan(const std::string& text, const ModelGraph& graph, const Recipe& r) {
  const auto j = ordered_json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("planned_with") || j["planned_with"] != planned_with(r) || !j.contains("schedule"))
    return std::nullopt;
  const auto number = [&](const char* name) {
    return j.contains(name) && j[name].is_number_integer() ? j[name].get<int64_t>() : 0;
  };
  Earlier e;
  e.schedule = schedule_from_json(graph, j["schedule"].dump());
  e.micro_batch_size = number("micro_batch_size");
  e.gradient_accumulation_steps = number("gradient_accumulation_steps");
  e.loss_chunk_bytes = static_cast<size_t>(std::max<int64_t>(0, number("loss_chunk_bytes")));
  if (!e.schedule || e.micro_batch_size < 1 || e.gradient_accumulation_steps < 1 || e.loss_chunk_bytes < 1)
    return std::nullopt;
  return e;
}

// The length of which attention costs what the data's sequences do: sum of squares over sum.
int64_t typical_length(const Dataset& d) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < d.samples.size(); ++i) {
    const auto n = static_cast<double>(d.samples.length(i));
    sum += n, squares += n * n;
  }
  return sum > 0 ? static_cast<int64_t>(squares / sum + 0.5) : 0;
}

RunPlan run_of(const Session& s, bool shape_only) {
  if (!shape_only) return plan_run(s.train, s.eval.samples.empty() ? nullptr : &s.eval, s.options);
  RunPlan r;
  r.max_tokens = s.options.batches.micro_batch_size * s.options.batches.max_seq_length;
  return r;
}

std::string format_seconds(double s) {
  return s < 1 ? str(static_cast<int64_t>(1000 * s + 0.5), " ms") : time_text(s);
}

}  // namespace

Planned make_plan(Session& s, const Recipe& r, const PlanningOptions& o) {
  Planned p;
  const AdapterSet shapes = AdapterSet::shapes(s.lora, s.modules);
  if (shapes.size() == 0) throw Error(ErrorCode::usage, "nothing to train: no module has an adapter");
  p.graph = build_model_graph(s.config, s.options.trainer.dtype, &shapes);
  BatchOptions& batches = s.options.batches;

  PlanRequest& q = p.request;
  const std::filesystem::path weights = o.shape_only ? "" : r.base_model;
  const PlannedStore store = planned_store(s.config, weights, quant_config(r));
  const bool on_device = s.absent_device || !s.context->backend().host_memory;
  q.weight_bytes = on_device ? store.device_bytes : store.bytes;
  if (on_device) q.device_formats = std::make_shared<WeightFormats>(store.formats);
  if (on_device && store.quantise_bytes > 0)
    p.notes.push_back(str("quantising, once and before all else, takes ", size_text(store.quantise_bytes),
                          " of the device's memory and gives it back"));
  q.attention = attention_library(*s.context);
  q.trained_parameters = shapes.size();
  if (on_device) {
    q.weights_mapped = false;
  } else {
    q.workspace_bytes = s.context->workspace_bytes();
    q.program_bytes = o.shape_only ? kShapeOnlyProgram : program_bytes(q.workspace_bytes);
  }
  q.loss_chunk_bytes = s.options.trainer.loss_chunk_bytes;
  q.checkpointing = s.options.trainer.checkpointing;
  q.limit = o.assume_memory > 0 ? MemoryLimit{static_cast<size_t>(o.assume_memory), true, "assumed memory"}
                                : memory_limit(*s.context, static_cast<size_t>(r.memory_limit.value_or(0)),
                                               static_cast<size_t>(r.memory_reserve));
  if (o.assume_memory == 0 && !s.absent_device) q.host_limit = host_room(static_cast<size_t>(r.memory_reserve));
  p.shape = {batches.micro_batch_size, batches.gradient_accumulation_steps, batches.max_seq_length, {}};
  const bool shape_only = o.shape_only;
  p.shape.tokens = [&s, shape_only](int64_t micro, int64_t length) {
    if (shape_only || length != s.options.batches.max_seq_length) return micro * length;
    TrainOptions with = s.options;
    with.batches.micro_batch_size = micro;
    return plan_run(s.train, s.eval.samples.empty() ? nullptr : &s.eval, with).max_tokens;
  };
  p.costs = o.assume_rate > 0
                ? CostModel::assume(o.assume_rate)
                : measured_costs(*s.context,
                                 {s.config, s.options.trainer.dtype, s.lora,
                                  p.shape.tokens(p.shape.micro_batch_size, p.shape.max_seq_length), q.loss_chunk_bytes},
                                 default_cache_dir());
  const std::function<CostModel()> known = [&p] { return p.costs; };

  const auto take_shape = [&](int64_t micro, int64_t accumulation) {
    batches.micro_batch_size = p.shape.micro_batch_size = micro;
    batches.gradient_accumulation_steps = p.shape.gradient_accumulation_steps = accumulation;
  };
  const auto earlier = o.earlier.empty() ? std::nullopt : earlier_plan(o.earlier, p.graph, r);
  if (earlier) {
    take_shape(earlier->micro_batch_size, earlier->gradient_accumulation_steps);
    q.loss_chunk_bytes = earlier->loss_chunk_bytes;
    q.schedule = earlier->schedule;
    p.reused = true;
  } else if (!r.micro_batch_size) {
    const int64_t rows = *r.effective_batch_size;
    const int64_t m = largest_micro_batch(p.graph, q, p.shape, rows, known);
    take_shape(std::max<int64_t>(m, 1), rows / std::max<int64_t>(m, 1));
    p.notes.push_back(str("micro_batch_size auto is ", p.shape.micro_batch_size, ", gradient_accumulation_steps ",
                          p.shape.gradient_accumulation_steps));
  }
  p.planned_with = planned_with(r);
  p.run = run_of(s, shape_only);
  q.max_tokens = p.run.max_tokens;
  q.sequence = typical_length(s.train);
  p.plan = plan_training(p.graph, q, known, true);

  if (p.reused && !p.plan.memory.fits()) {  // less memory than when it was planned
    q.schedule.reset();
    p.reused = false;
    p.plan = plan_training(p.graph, q, known, true);
    p.notes.push_back("the schedule of the unfinished run does not fit any more: planned anew, with equal results");
  }
  if (!p.plan.memory.fits() && r.on_does_not_fit == Recipe::DoesNotFit::adjust) {
    const FitAnswer a = make_it_fit(p.graph, q, p.shape, known);
    if (a.fits && !a.shortens) {
      q = a.request;
      take_shape(a.shape.micro_batch_size, a.shape.gradient_accumulation_steps);
      p.run = run_of(s, shape_only);
      q.max_tokens = p.run.max_tokens;
      p.plan = plan_training(p.graph, q, known, true);
      p.notes.push_back(str("adjusted to fit: ", a.text()));
    }
  }
  TrainerOptions& t = s.options.trainer;
  t.loss_chunk_bytes = q.loss_chunk_bytes;
  t.checkpointing = q.checkpointing;
  t.schedule = p.plan.training.schedule;
  t.costs = p.costs;
  t.limit = q.limit;
  t.host_limit = q.host_limit;
  t.program_bytes = q.program_bytes;
  return p;
}

void require_fit(const Planned& p) {
  if (p.plan.memory.fits()) return;
  const std::function<CostModel()> known = [&p] { return p.costs; };
  const FitAnswer a = make_it_fit(p.graph, p.request, p.shape, known);
  std::string hint;
  if (a.fits && !a.shortens)
    hint = str("this fits, with the same results: ", a.text(), " (or on_does_not_fit: adjust)");
  else if (a.fits)
    hint = str("this fits, but cuts rows shorter: ", a.text(), "; a smaller lora_r or base model keeps them whole");
  else
    hint = "no batch of this model fits: a smaller base model, a smaller lora_r, or more memory";
  check_fits(p.plan.memory, hint);
}

size_t budget_between(const PlannedSchedule& least, const PlannedSchedule& most, int percent) {
  const size_t a = least.program.peak, b = std::max(a, most.program.peak);
  return a + (b - a) / 100 * static_cast<size_t>(percent);
}

std::string plan_text(const Planned& p) {
  const RunPlan& run = p.run;
  const MemoryPlan& m = p.plan.memory;
  std::string out;
  if (run.rows > 0) {
    char rows[32];
    std::snprintf(rows, sizeof rows, "%.1f", run.rows_per_step);
    out = str(run.rows, " rows -> ", run.micro_batches, " micro-batches of up to ", run.max_tokens, " tokens -> ",
              run.steps_per_epoch, " steps per epoch, ", run.total_steps, " in all, about ", rows, " rows per step\n");
    if (run.total_steps < 50)
      out += str("only ", run.total_steps,
                 " steps: little may be learned; a smaller gradient_accumulation_steps or more epochs give more\n");
  } else {
    out = str("micro-batches of ", p.shape.micro_batch_size, " x ", p.shape.max_seq_length, " = ", run.max_tokens,
              " tokens\n");
  }
  for (const std::string& note : p.notes) out += note + "\n";
  out += str("memory, planned (gradient checkpointing: ", m.schedule, p.reused ? ", as the run began" : "", "):\n",
             m.table());
  const Schedule& schedule = p.plan.training.schedule;
  if (schedule.name == "auto" && m.recompute_overhead > 0)
    out += str("kept of each layer (* all, 1-9 tenths, I input, ",
               m.offloaded_inputs > 0 ? "H input in host memory, " : "",
               ". nothing): ", schedule_strip(p.graph, schedule), "\n");
  char overhead[80];
  if (m.offloaded_inputs > 0) {
    std::snprintf(overhead, sizeof overhead, "%.1f", 100 * m.offload_overhead);
    out += str("in host memory until they are needed: the inputs of ", m.offloaded_inputs, " layers, ",
               size_text(m.offloaded_bytes), "; the copies add ", overhead, " % to a step, planned\n");
  }
  std::snprintf(overhead, sizeof overhead, "recompute adds %.0f %% to a step, planned",
                100 * std::max(0.0, m.recompute_overhead - m.offload_overhead));
  out += overhead;
  if (m.recompute_overhead > 0.6)
    out +=
        str(p.request.device_formats && !p.request.checkpointing.offload_inputs ? "; activation_offloading, a" : "; a",
            " smaller loss_chunk_bytes or micro_batch_size (with more accumulation) leaves more room and takes less");
  else if (m.recompute_overhead > 0)
    out += schedule.name == "auto" ? "; results are the same with more memory and less of it"
                                   : "; results are the same without it (--no-gradient-checkpointing), memory is not";
  out += "\n";
  const double micro = m.forward_seconds + m.recompute_seconds + m.backward_seconds + m.offload_seconds;
  if (micro > 0 && run.max_tokens > 0) {
    const double per_token = micro / static_cast<double>(run.max_tokens);
    out += str("time, planned: ", format_seconds(micro), " a micro-batch");
    if (run.tokens_per_epoch > 0) {
      const double epoch = per_token * static_cast<double>(run.tokens_per_epoch);
      out += str(", ", format_seconds(epoch / static_cast<double>(run.steps_per_epoch)), " a step, ",
                 format_seconds(epoch), " an epoch");
    } else {
      out += str(", ", format_seconds(micro * static_cast<double>(p.shape.gradient_accumulation_steps)), " a step");
    }
    out += str(", ", format_seconds(per_token * 1e6), " per million tokens\n");
  }
  return out;
}

std::string plan_json(const Planned& p) {
  const MemoryPlan& m = p.plan.memory;
  const RunPlan& run = p.run;
  ordered_json j;
  j["rows"] = run.rows;
  j["micro_batches_per_epoch"] = run.micro_batches;
  j["steps_per_epoch"] = run.steps_per_epoch;
  j["total_steps"] = run.total_steps;
  j["tokens_per_epoch"] = run.tokens_per_epoch;
  j["max_tokens"] = run.max_tokens;
  j["micro_batch_size"] = p.shape.micro_batch_size;
  j["gradient_accumulation_steps"] = p.shape.gradient_accumulation_steps;
  j["max_seq_length"] = p.shape.max_seq_length;
  j["loss_chunk_bytes"] = p.request.loss_chunk_bytes;
  j["gradient_checkpointing"] = m.schedule;
  j["recompute_overhead"] = m.recompute_overhead;
  j["forward_seconds"] = m.forward_seconds;
  j["recompute_seconds"] = m.recompute_seconds;
  j["backward_seconds"] = m.backward_seconds;
  for (const auto& l : m.lines) {
    j["memory"].push_back({{"name", l.name}, {"bytes", l.bytes}, {"mapped", l.mapped}});
    if (l.host) j["memory"].back()["host"] = true;  // no part of the totals
  }
  if (m.offloaded_inputs > 0) {
    j["offloaded_layer_inputs"] = m.offloaded_inputs;
    j["offloaded_bytes"] = m.offloaded_bytes;
    j["offload_overhead"] = m.offload_overhead;
    j["offload_seconds"] = m.offload_seconds;
  }
  j["total_bytes"] = m.total();
  j["anonymous_bytes"] = m.anonymous();
  if (m.host() > 0) j["host_bytes"] = m.host();
  j["limit_bytes"] = m.limit.bytes;
  j["limit"] = m.limit.name;
  j["fits"] = m.fits();
  j["planned_with"] = p.planned_with;
  j["schedule"] = ordered_json::parse(schedule_to_json(p.graph, p.plan.training.schedule));
  return j.dump(2) + "\n";
}

}  // namespace bantam
