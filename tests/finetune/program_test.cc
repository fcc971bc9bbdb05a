// SPDX-License-Identifier: Apache-2.0
// Programs: memory against an independent count, placement, legality; and what recompute runs again.
#include "finetune/recompute/program.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "finetune/model/op_kind.h"
#include "finetune/recompute/placement.h"
#include "model_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

// Sum of live bytes, from the instructions alone: a buffer is live from its first to its last mention.
size_t live_bytes_from_instructions(const Program& p) {
  std::vector<int> first(p.buffers.size(), -1), last(p.buffers.size(), -1);
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    const Instr& n = p.instrs[i];
    const auto touch = [&](int b) {
      if (b < 0) return;
      if (first[static_cast<size_t>(b)] < 0) first[static_cast<size_t>(b)] = static_cast<int>(i);
      last[static_cast<size_t>(b)] = static_cast<int>(i);
    };
    for (const auto& r : n.in) touch(r.buffer);
    for (const auto& r : n.din) touch(r.buffer);
    for (const auto& r : n.out) touch(r.buffer);
    for (const auto& r : n.dout) touch(r.buffer);
    touch(n.scratch);
  }
  if (p.loss >= 0) last[static_cast<size_t>(p.loss)] = static_cast<int>(p.instrs.size()) - 1;
  size_t peak = 0;
  for (int t = 0; t < static_cast<int>(p.instrs.size()); ++t) {
    size_t sum = 0;
    for (size_t b = 0; b < p.buffers.size(); ++b)
      if (first[b] <= t && t <= last[b]) sum += p.buffers[b].bytes;
    peak = std::max(peak, sum);
  }
  return peak;
}

void check_no_overlap(const Program& p) {
  for (size_t a = 0; a < p.buffers.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const Buffer &x = p.buffers[a], &y = p.buffers[b];
      if (x.last < y.first || y.last < x.first) continue;
      const bool apart = x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
      if (!apart) FAIL_CHECK(x.name << " and " << y.name << " overlap");
    }
  for (const Buffer& b : p.buffers) CHECK(b.offset + b.bytes <= p.peak);
}

}  // namespace

TEST_CASE("placed peak is within 3 % of the greatest sum of live bytes") {
  for (const ModelConfig& c : {tiny_config(), smollm2_135m()})
    for (const double dropout : {0.0, 0.1})
      for (const auto mode : {CheckpointMode::off, CheckpointMode::selective, CheckpointMode::full})
        for (const DType dtype : {DType::bf16, DType::f32}) {
          const AdapterSet adapters({.r = 16, .lora_dropout = dropout}, linear_modules(c), 1);
          const ModelGraph g = build_model_graph(c, dtype, &adapters);
          const Program p = compile(g, training_schedule(g, {mode, {}}), {.max_tokens = 1024});
          CAPTURE(p.schedule);
          CAPTURE(dropout);
          CHECK(p.live_peak == live_bytes_from_instructions(p));
          CHECK(static_cast<double>(p.peak) <= 1.03 * static_cast<double>(p.live_peak));
          check_no_overlap(p);
          const Program e = compile(g, evaluation_schedule(g), {.max_tokens = 1024});
          CHECK(static_cast<double>(e.peak) <= 1.03 * static_cast<double>(e.live_peak));
          check_no_overlap(e);
        }
}

TEST_CASE("deep models are placed as tightly, without a search") {
  ModelConfig c = smollm2_135m();
  c.num_hidden_layers = 200;
  const AdapterSet adapters({.r = 16, .lora_dropout = 0.1}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  for (const auto mode : {CheckpointMode::off, CheckpointMode::selective, CheckpointMode::full}) {
    const Program p = compile(g, training_schedule(g, {mode, {}}), {.max_tokens = 512, .loss_chunk_bytes = 16 << 20});
    CAPTURE(p.schedule);
    CHECK(p.buffers.size() > 5000);
    CHECK(static_cast<double>(p.peak) <= 1.03 * static_cast<double>(p.live_peak));
    // Sorted by offset at every 13th step, neighbours do not overlap.
    std::vector<std::vector<size_t>> at(p.instrs.size());
    for (size_t b = 0; b < p.buffers.size(); ++b)
      for (int t = (p.buffers[b].first + 12) / 13 * 13; t <= p.buffers[b].last; t += 13)
        at[static_cast<size_t>(t)].push_back(b);
    int overlaps = 0;
    for (size_t t = 0; t < at.size(); ++t) {
      std::sort(at[t].begin(), at[t].end(),
                [&](size_t a, size_t b) { return p.buffers[a].offset < p.buffers[b].offset; });
      for (size_t k = 1; k < at[t].size(); ++k)
        overlaps += p.buffers[at[t][k - 1]].offset + p.buffers[at[t][k - 1]].bytes > p.buffers[at[t][k]].offset;
    }
    CHECK(overlaps == 0);
  }
}

TEST_CASE("checkpointing trades memory for recompute, in order") {
  const ModelConfig c = smollm2_135m();
  const AdapterSet adapters({.r = 16}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  const auto program = [&](CheckpointMode m) {
    return compile(g, training_schedule(g, {m, {}}), {.max_tokens = 1024, .loss_chunk_bytes = 16 << 20});
  };
  const Program off = program(CheckpointMode::off), selective = program(CheckpointMode::selective),
                full = program(CheckpointMode::full);
  CHECK(off.peak > selective.peak);
  CHECK(selective.peak > 2 * full.peak);
  CHECK(off.recompute_flops == 0);
  CHECK(selective.recompute_flops == 0);  // norms and gates only: no products
  CHECK(full.recompute_flops > 0.5 * (full.forward_flops));
  CHECK(full.recompute_flops < full.forward_flops);
}

TEST_CASE("recompute never runs down_proj again, and runs nothing when all is kept") {
  const ModelConfig c = tiny_config();
  const AdapterSet adapters({.r = 4}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  int again = 0;
  for (const auto& n : compile(g, training_schedule(g, {CheckpointMode::full, {}}), {.max_tokens = 8}).instrs) {
    const Op& op = g.stages[static_cast<size_t>(n.stage)].ops[static_cast<size_t>(n.op)];
    if (!n.recompute) continue;
    ++again;
    CHECK_FALSE((op.kind == OpKind::linear && op.module == "mlp.down_proj"));
  }
  CHECK(again > 0);
  for (const auto& n : compile(g, training_schedule(g, {CheckpointMode::off, {}}), {.max_tokens = 8}).instrs)
    CHECK_FALSE(n.recompute);
}

TEST_CASE("nothing runs below the first adapter, and the first layer has no dx") {
  const ModelConfig c = tiny_config();
  const auto linears = linear_modules(c);
  std::vector<AdapterSet::Module> last;
  for (const auto& m : linears)
    if (m.path.starts_with("model.layers.2.")) last.push_back(m);
  const AdapterSet adapters({.r = 4}, last, 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  for (const auto& n : compile(g, training_schedule(g, {CheckpointMode::off, {}}), {.max_tokens = 8}).instrs)
    if (n.backward) CHECK(n.stage >= 3);  // stage 0 is the embedding
  const AdapterSet everywhere({.r = 4}, linears, 1);
  const ModelGraph all = build_model_graph(c, DType::bf16, &everywhere);
  for (const auto& n : compile(all, training_schedule(all, {CheckpointMode::off, {}}), {.max_tokens = 8}).instrs) {
    const Op& op = all.stages[static_cast<size_t>(n.stage)].ops[static_cast<size_t>(n.op)];
    if (n.backward && n.stage == 1 && op.module == "self_attn.q_proj" && op.kind == OpKind::linear)
      CHECK(n.din[0].buffer < 0);
    if (n.backward && n.stage == 2 && op.module == "self_attn.q_proj" && op.kind == OpKind::linear)
      CHECK(n.din[0].buffer >= 0);
  }
}

TEST_CASE("selective keeps what a product made and what rope made of it, and rebuilds norms and gates") {
  const ModelConfig c = tiny_config();
  const AdapterSet adapters({.r = 4, .lora_dropout = 0.1}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  const Schedule s = training_schedule(g, {CheckpointMode::selective, {}});
  const LayerGraph& layer = g.stages[2];  // the first layer gives no dx, so its first norm has no backward
  std::vector<std::string> kept;
  for (size_t v = 0; v < layer.values.size(); ++v)
    if (s.actions[2].keep[v] && !layer.values[v].name.ends_with(".lora")) kept.push_back(layer.values[v].name);
  CHECK(kept == std::vector<std::string>{"hidden", "input_layernorm.rstd", "self_attn.v_proj", "self_attn.q_proj.rope",
                                         "self_attn.k_proj.rope", "attention", "attention.lse", "self_attn.o_proj",
                                         "post_attention_layernorm.rstd", "mlp.gate_proj", "mlp.up_proj"});
}

TEST_CASE("an unknown name to save is an error that lists the names") {
  const ModelConfig c = tiny_config();
  const AdapterSet adapters({.r = 4}, linear_modules(c), 1);
  const ModelGraph g = build_model_graph(c, DType::bf16, &adapters);
  try {
    training_schedule(g, {CheckpointMode::selective, {"atention"}});
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    CHECK(std::string(e.what()) == "selective_checkpointing.save: 'atention' is no value of this model's layers");
    CHECK(e.hint().find("mlp.gate_proj") != std::string::npos);
  }
}

TEST_CASE("placement of random intervals never overlaps and stays near the bound") {
  std::mt19937 rng(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Interval> v(1 + rng() % 40);
    for (auto& i : v) {
      i.bytes = 64 * (1 + rng() % 50);
      i.first = static_cast<int>(rng() % 30);
      i.last = i.first + static_cast<int>(rng() % 10);
      i.saved = trial % 2 && rng() % 2;
    }
    const size_t peak = place(v);
    CHECK(peak >= live_peak(v));
    for (size_t a = 0; a < v.size(); ++a) {
      CHECK(v[a].offset + v[a].bytes <= peak);
      for (size_t b = 0; b < a; ++b)
        if (v[a].first <= v[b].last && v[b].first <= v[a].last)
          CHECK((v[a].offset + v[a].bytes <= v[b].offset || v[b].offset + v[b].bytes <= v[a].offset));
    }
  }
}
