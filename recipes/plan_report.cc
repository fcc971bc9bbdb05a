// SPDX-License-Identifier: Apache-2.0
#include "plan_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../finetune/recompute/schedule_text.h"

namespace bantam {

namespace {

using nlohmann::ordered_json;

constexpr const char* kOffloaded = ", offloaded";  // of strategies: layer inputs in host memory
constexpr int64_t kMostTokens = int64_t{1} << 22;

Largest largest_of(const Planned& p, const CheckpointPolicy& policy) {
  const int64_t tokens = largest_tokens(p.graph, p.request, policy, kMostTokens);
  return {tokens / p.shape.max_seq_length,
          std::min(tokens / p.shape.micro_batch_size, p.graph.config.max_position_embeddings)};
}

std::string pad(const std::string& text, size_t width, bool left = false) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + blanks : blanks + text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100 * share);
  return text;
}

std::string count_text(int64_t n) {
  return n == 0 ? "none" : std::to_string(n);
}

}  // namespace

PlanReport report_of(const Planned& p) {
  PlanReport r;
  const ModelConfig& c = p.graph.config;
  const SchedulePlanner planner(p.graph, p.costs,
                                {.max_tokens = p.request.max_tokens,
                                 .loss_chunk_bytes = p.request.loss_chunk_bytes,
                                 .sequence = p.request.sequence},
                                offload_options(p.request, p.plan));
  const PlannedSchedule none = planner.fixed({CheckpointMode::off, {}});
  const size_t others = p.plan.memory.need() - p.plan.arena();
  const size_t limit = p.plan.memory.limit.bytes, host = offload_options(p.request, p.plan).host_bytes;
  const auto add = [&](const std::string& name, const PlannedSchedule& s) {
    const size_t arena = std::max(s.program.peak, p.plan.evaluation.peak);
    r.strategies.push_back({name, arena, others + arena, s.cost.total() / none.cost.total() - 1,
                            (limit == 0 || others + arena <= limit) && (host == 0 || s.program.host_peak <= host),
                            false});
  };
  add("none", none);
  add("selective", planner.fixed({CheckpointMode::selective, {}}));
  const PlannedSchedule full = planner.fixed({CheckpointMode::full, {}});
  for (const int share : {75, 50, 25})
    if (const auto s = planner.automatic(budget_between(full, none, share)))
      add("auto at " + std::to_string(share) + " %", *s);
  add("true", full);
  if (p.request.device_formats)
    add(str("true", kOffloaded), planner.fixed({.mode = CheckpointMode::full, .offload_inputs = true}));
  add("sqrt", planner.fixed({CheckpointMode::sqrt, {}}));
  std::string name = p.plan.training.schedule.name;
  if (name == "false") name = "none";
  if (name != "auto" && p.plan.memory.offloaded_inputs > 0) name += kOffloaded;
  bool found = false;
  for (StrategyRow& s : r.strategies)
    found = found || (s.chosen = s.name == name ||
                                 (name == "auto" && s.name == "none" && p.plan.memory.recompute_overhead == 0));
  if (!found) {
    add(name, p.plan.training);
    r.strategies.back().chosen = true;
  }
  r.largest.push_back({"without checkpointing", "without_checkpointing", largest_of(p, {CheckpointMode::off, {}})});
  r.largest.push_back({"with (true)", "with_checkpointing", largest_of(p, {CheckpointMode::full, {}})});
  if (p.request.device_formats)
    r.largest.push_back({str("with (true", kOffloaded, ")"), "with_checkpointing_offloaded",
                         largest_of(p, {.mode = CheckpointMode::full, .offload_inputs = true})});
  r.logits_bytes = static_cast<size_t>(p.request.max_tokens) * static_cast<size_t>(c.vocab_size) * sizeof(float);
  r.layer_inputs =
      static_cast<size_t>(p.request.max_tokens * c.hidden_size * c.num_hidden_layers) * size_of(p.graph.dtype);
  if (!p.plan.memory.fits()) r.answer = make_it_fit(p.graph, p.request, p.shape, [&p] { return p.costs; });
  return r;
}

std::string report_text(const Planned& p, const PlanReport& r) {
  std::string out =
      "\nstrategies                activations         total       time   (auto: at a share of what lies between true "
      "and none)\n";
  for (const StrategyRow& s : r.strategies)
    out += "  " + pad(s.name, 20, true) + pad(size_text(s.activations), 14) + pad(size_text(s.total), 14) +
           pad(percent(s.overhead), 11) + (s.fits ? "" : "  does not fit") + (s.chosen ? "  <- this plan" : "") + "\n";
  const MemoryPlan& m = p.plan.memory;
  if (m.limit.bytes > 0) {
    out += "\nlargest that fits         micro_batch_size   max_seq_length\n";
    for (const auto& [name, key, l] : r.largest)
      out += "  " + pad(name, 24, true) + pad(count_text(l.micro_batch_size), 16) +
             pad(count_text(l.max_seq_length), 17) + "\n";
  }
  out +=
      "\nCheckpointing changes the activations only: weights, adapters, gradients, optimizer state and the loss chunk "
      "stay "
      "as they are.\nWhat `true` keeps, one input per layer, is " +
      size_text(r.layer_inputs) +
      (p.request.device_formats ? "; activation_offloading keeps that in host memory" : "") + ". Logits of " +
      size_text(r.logits_bytes) + " (" + std::to_string(p.request.max_tokens) + " tokens x " +
      std::to_string(p.graph.config.vocab_size) + " words x 4 bytes) are not allocated: the loss works in chunks.\n";
  if (!m.fits()) {
    const bool device = m.limit.bytes > 0 && m.need() > m.limit.bytes;  // else the host's
    out += str("\nIt does not fit: ", size_text(device ? m.need() - m.limit.bytes : m.host() - m.host_limit), " over",
               device ? "" : " what the host has free", ". What would, in this order:\n");
    for (const FitChange& c : r.answer.changes)
      out += "  " + c.key + ": " + c.value + "  -> " + size_text(c.need) + "\n";
    if (!r.answer.fits)
      out += "  nothing of this model fits: a smaller base model, a smaller lora_r, or more memory\n";
    else if (r.answer.shortens)
      out += "The last of these cuts rows shorter: a smaller lora_r or base model keeps them whole.\n";
  } else if (m.recompute_overhead > 0.005 && r.strategies[0].fits) {
    out +=
        "\nThere is memory for a step without recompute: --no-gradient-checkpointing (or auto) is faster, with equal "
        "results.\n";
  } else if (m.limit.bytes > 0 && r.largest[1].most.max_seq_length > p.shape.max_seq_length) {
    out +=
        "\nMemory is left over: a larger micro_batch_size, or examples up to the length above, before anything is "
        "cut.\n";
  }
  return out;
}

std::string report_json(const Planned& p, const PlanReport& r) {
  ordered_json j = ordered_json::parse(plan_json(p));
  for (const StrategyRow& s : r.strategies)
    j["strategies"].push_back({{"name", s.name},
                               {"activation_bytes", s.activations},
                               {"total_bytes", s.total},
                               {"overhead", s.overhead},
                               {"fits", s.fits},
                               {"chosen", s.chosen}});
  for (const auto& [name, key, l] : r.largest)
    j["largest"][key] = {{"micro_batch_size", l.micro_batch_size}, {"max_seq_length", l.max_seq_length}};
  j["layer_inputs_bytes"] = r.layer_inputs;
  j["logits_not_allocated_bytes"] = r.logits_bytes;
  j["changes_to_fit"] = ordered_json::array();
  for (const FitChange& c : r.answer.changes)
    j["changes_to_fit"].push_back({{"key", c.key}, {"value", c.value}, {"total_bytes", c.need}});
  return j.dump(2) + "\n";
}

std::string plan_svg(const Planned& p) {
  constexpr double kWidth = 960, kHeight = 420, kLeft = 90, kRight = 20, kTop = 50, kBottom = 110;
  const double w = kWidth - kLeft - kRight, h = kHeight - kTop - kBottom;
  const Program& program = p.plan.training.program;
  // Time of each instruction, and the three layers of memory at it.
  std::vector<double> end;
  double time = 0;
  for (const Instr& n : program.instrs) {
    const LayerGraph& g = p.graph.stages[static_cast<size_t>(n.stage)];
    time += p.costs.seconds(p.graph.config, g, g.ops[static_cast<size_t>(n.op)], n.backward, n.din[0].buffer >= 0,
                            program.max_tokens, program.sequence);
    end.push_back(time);
  }
  std::vector<double> saved(program.instrs.size() + 1), working(saved), scratch(saved);
  for (const Buffer& b : program.buffers) {
    auto& kind = b.saved ? saved : b.row_bytes == 0 ? scratch : working;
    kind[static_cast<size_t>(b.first)] += static_cast<double>(b.bytes);
    kind[static_cast<size_t>(b.last) + 1] -= static_cast<double>(b.bytes);
  }
  double most = static_cast<double>(program.peak);
  const auto x_of = [&](double t) { return kLeft + w * (time > 0 ? t / time : 0); };
  const auto y_of = [&](double bytes) { return kTop + h * (1 - bytes / most); };
  char text[256];
  const auto put = [&](std::string& to, const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    to += text;
  };
  std::string out;
  put(out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n",
      kWidth, kHeight);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  put(out,
      "<text x=\"%g\" y=\"24\" font-size=\"16\">Memory of one micro-batch of %lld tokens, gradient checkpointing: "
      "%s</text>\n",
      kLeft, static_cast<long long>(program.max_tokens), program.schedule.c_str());
  double a = 0, b = 0, c = 0;
  std::vector<std::array<double, 3>> level;
  for (size_t t = 0; t < program.instrs.size(); ++t) level.push_back({a += saved[t], b += working[t], c += scratch[t]});
  const char* fills[] = {"#4878a8", "#e8a33d", "#b0b0b0"};
  const char* names[] = {"saved activations", "working set", "loss chunk and scratch"};
  for (int layer = 2; layer >= 0; --layer) {  // the sum of all behind, the saved in front
    std::string path;
    put(path, "<path fill=\"%s\" d=\"M%.1f %.1f", fills[layer], kLeft, y_of(0));
    double x = kLeft;
    for (size_t t = 0; t < level.size(); ++t) {
      double sum = 0;
      for (int k = 0; k <= layer; ++k) sum += level[t][static_cast<size_t>(k)];
      put(path, "L%.1f %.1fL%.1f %.1f", x, y_of(sum), x_of(end[t]), y_of(sum));
      x = x_of(end[t]);
    }
    put(path, "L%.1f %.1fZ\"/>\n", x, y_of(0));
    out += path;
  }
  for (int i = 0; i <= 4; ++i) {
    const double bytes = most * i / 4;
    put(out, "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", kLeft, kLeft + w, y_of(bytes),
        y_of(bytes));
    put(out, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 8, y_of(bytes) + 4,
        size_text(static_cast<size_t>(bytes)).c_str());
  }
  // Where the loss stands: the end of the first forward.
  for (const ActionSpan& s : program.actions)
    if (s.kind == Action::Kind::backward) {
      const double at = s.first > 0 ? x_of(end[static_cast<size_t>(s.first) - 1]) : kLeft;
      put(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"#444\" stroke-dasharray=\"4 3\"/>", at, at,
          kTop, kTop + h);
      put(out, "<text x=\"%.1f\" y=\"%g\">loss, backward</text>\n", at + 4, kTop + 12);
      break;
    }
  put(out, "<text x=\"%g\" y=\"%g\">0</text><text x=\"%g\" y=\"%g\" text-anchor=\"end\">%.3g s</text>\n", kLeft,
      kTop + h + 18, kLeft + w, kTop + h + 18, time);
  for (int k = 0; k < 3; ++k) {
    put(out, "<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"12\" fill=\"%s\"/>", kLeft + 130 + 190 * k, kTop + h + 8,
        fills[k]);
    put(out, "<text x=\"%g\" y=\"%g\">%s</text>\n", kLeft + 148 + 190 * k, kTop + h + 18, names[k]);
  }
  const std::string strip = schedule_strip(p.graph, p.plan.training.schedule);
  const double cell = w / static_cast<double>(std::max<size_t>(strip.size(), 1));
  put(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">layers</text>", kLeft - 8, kTop + h + 58);
  for (size_t i = 0; i < strip.size(); ++i) {
    // From white (nothing) over the input alone to the colour of saved memory (all).
    const double share = strip[i] == '*'   ? 1
                         : strip[i] == 'I' ? 0.08
                         : strip[i] == 'H' ? 0.04
                         : strip[i] == '.' ? 0
                                           : 0.1 * (strip[i] - '0');
    put(out,
        "<rect x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"22\" fill=\"#4878a8\" fill-opacity=\"%.2f\" stroke=\"#888\" "
        "stroke-width=\"0.5\"/>\n",
        kLeft + cell * static_cast<double>(i), kTop + h + 42, cell, share);
  }
  put(out, "<text x=\"%g\" y=\"%g\">kept of each layer: the darker the more, white nothing</text>\n", kLeft,
      kTop + h + 86);
  return out + "</svg>\n";
}

}  // namespace bantam
