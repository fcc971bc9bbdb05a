// SPDX-License-Identifier: Apache-2.0
#include "calibrate.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "../../kernels/copy.h"
#include "../../kernels/device_scratch.h"
#include "../../kernels/error.h"
#include "../../kernels/hash.h"
#include "../../quant/safetensors.h"
#include "../model/model.h"
#include "device_needs.h"
#include "executor.h"
#include "synthetic.h"

namespace bantam {

namespace {

constexpr int kVersion = 2;  // of the measurement: bumped when ops or kernels change enough to measure again
constexpr int64_t kLargestHidden = 1024, kLargestVocab = 8192, kMostTokens = 1024;
constexpr int kLayers = 2;  // the second is measured: it gives dx
constexpr int kRounds = 2;

// The same proportions; rates hardly change beyond this width, the time to measure them would.
ModelConfig scaled_down(ModelConfig c) {
  c.num_hidden_layers = kLayers;
  c.vocab_size = std::min(c.vocab_size, kLargestVocab);
  if (c.hidden_size <= kLargestHidden) return c;
  const int64_t group = c.num_attention_heads / c.num_key_value_heads, before = c.hidden_size;
  const int64_t wanted = std::max<int64_t>(1, c.num_attention_heads * kLargestHidden / before);
  c.num_key_value_heads = std::max<int64_t>(1, wanted / group);
  c.num_attention_heads = c.num_key_value_heads * group;
  c.hidden_size = kLargestHidden;
  c.intermediate_size = std::max<int64_t>(64, c.intermediate_size * kLargestHidden / before / 64 * 64);
  return c;
}

int64_t measured_tokens(const CalibrationShape& s) {
  // Powers of two: one measurement serves micro-batches of similar size.
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(s.tokens, 16, kMostTokens))));
}

// As many rows a chunk as with the whole vocabulary.
size_t scaled_chunk(const CalibrationShape& s, const ModelConfig& c) {
  return std::max<size_t>(
      1, static_cast<size_t>(static_cast<double>(s.loss_chunk_bytes) * static_cast<double>(c.vocab_size) /
                             static_cast<double>(s.config.vocab_size)));
}

// Through memory, not caches: a buffer of many times their size. On a device as large as takes a measurable time.
double copy_seconds_per_byte(Context& ctx) {
  const Backend& backend = ctx.backend();
  const bool host = backend.host_memory;
  constexpr int64_t kWidth = 4096;
  for (size_t bytes = static_cast<size_t>(host ? 96 : 1) << 20;; bytes *= 4) {
    const DeviceBuffer from(backend, bytes, "calibration"), to(backend, bytes, "calibration");
    const auto matrix = [&](const DeviceBuffer& b) {
      return TensorView(b.data(), DType::bf16, static_cast<int64_t>(bytes) / (2 * kWidth), kWidth);
    };
    backend.fill(from.data(), 1, bytes);
    backend.fill(to.data(), 2, bytes);
    double least = 1e30;
    for (int round = 0; round < 3; ++round) {
      if (backend.synchronize) backend.synchronize();
      const auto t0 = std::chrono::steady_clock::now();
      if (host)
        std::memcpy(to.data(), from.data(), bytes);
      else
        copy(ctx, {.x = matrix(from), .y = matrix(to)});
      if (backend.synchronize) backend.synchronize();
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
    }
    if (host || least > 2e-4 || bytes >= size_t{256} << 20) return least / static_cast<double>(bytes);
  }
}

// Of copies between the device and pinned memory, as large as takes a measurable time; one at a time, as in a step.
double host_seconds_per_byte(Context& ctx, bool out) {
  const Backend& backend = ctx.backend();
  for (size_t bytes = size_t{1} << 20;; bytes *= 4) {
    const DeviceBuffer device(backend, bytes, "calibration");
    const PinnedBuffer host(backend, bytes, "calibration");
    backend.fill(device.data(), 1, bytes);
    double least = 1e30;
    for (int round = 0; round < 4; ++round) {  // the first makes streams and events
      backend.synchronize();
      const auto t0 = std::chrono::steady_clock::now();
      if (out || round == 0)
        backend.copy_out(host.data(), device.data(), bytes, 0);
      else
        backend.copy_in(device.data(), host.data(), bytes, 0);
      backend.wait_copy(0);
      backend.synchronize();
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
      if (round > 0) least = std::min(least, s);
    }
    if (least > 5e-4 || bytes >= size_t{64} << 20) return least / static_cast<double>(bytes);
  }
}

}  // namespace

std::string machine_name(const Context& ctx) {
  if (ctx.backend().device_info) return ctx.backend().device_info(ctx.device()).name;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

CostModel calibrate(Context& ctx, const CalibrationShape& shape) {
  const ModelConfig c = scaled_down(shape.config);
  const int64_t t = measured_tokens(shape);
  AdapterSet adapters(shape.lora, linear_modules(c), 1);
  const ModelGraph graph = build_model_graph(c, shape.dtype, &adapters);
  const ProgramOptions options{.max_tokens = t, .loss_chunk_bytes = scaled_chunk(shape, c)};
  const Program program = compile(graph, training_schedule(graph, {CheckpointMode::full, {}}), options);
  Arena arena(ctx.backend(), {{"calibration", program.peak}});
  adapters.move_to(ctx.backend());
  const auto weights = synthetic_model(c)->store->on(ctx.backend());
  Executor executor(ctx, graph, weights, arena.region("calibration"), program.peak);
  if (!ctx.backend().host_memory) {
    const DeviceNeeds needs = device_needs(graph, program, weights->formats(), attention_library(ctx));
    executor.reserve(needs.workspace, staging_bytes(needs.upload), decoded_slots(needs, 0));
  }
  StepBuffers buffers(ctx.backend(), c, t);
  Batch batch;
  for (int64_t i = 0; i < t; ++i) {
    batch.ids.push_back(static_cast<int32_t>(i % c.vocab_size));
    batch.labels.push_back(static_cast<int32_t>((i * 7) % c.vocab_size));
    batch.weights.push_back(1);
    batch.positions.push_back(static_cast<int32_t>(i));
  }
  batch.cu_seqlens = {0, static_cast<int32_t>(t)};
  batch.sample_ids = {1};

  // By instruction the least of a few rounds; then per op: seconds over work.
  std::vector<double> least(program.instrs.size(), 1e30);
  for (int round = 0; round <= kRounds; ++round) {
    size_t i = 0;
    executor.run(program, buffers.fill(batch, 1.0 / static_cast<double>(t), 1, 0, true),
                 {.adapters = &adapters, .profile = [&](const Instr&, const Op&, double s) {
                    if (round > 0) least[i] = std::min(least[i], s);  // the first only warms up
                    ++i;
                  }});
  }
  std::map<std::string, std::pair<double, double>> sums;  // seconds, work
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& n = program.instrs[i];
    const LayerGraph& g = graph.stages[static_cast<size_t>(n.stage)];
    if (g.layer == 0) continue;
    const Op& op = g.ops[static_cast<size_t>(n.op)];
    const double w = CostModel::work(c, g, op, n.backward, n.din[0].buffer >= 0, t);
    for (const std::string& key : {CostModel::key(op, n.backward), CostModel::kind_key(op, n.backward)}) {
      auto& [seconds, work] = sums[key];
      seconds += least[i];
      work += w;
    }
  }
  CostModel m;
  for (const auto& [key, s] : sums) m.set(key, s.second > 0 ? s.first / s.second : 0);
  // The forward of the loss is not part of training; evaluation and plans ask for it.
  for (const Op& op : graph.stages.back().ops)
    if (info(op.kind).loss)
      if (const auto it = sums.find(CostModel::key(op, true)); it != sums.end())
        m.set(CostModel::key(op, false), it->second.first / it->second.second);
  m.set(CostModel::kKept, copy_seconds_per_byte(ctx));
  if (ctx.backend().copy_out) {
    m.set(CostModel::kCopyOut, host_seconds_per_byte(ctx, true));
    m.set(CostModel::kCopyIn, host_seconds_per_byte(ctx, false));
  }
  return m;
}

CostModel measured_costs(Context& ctx, const CalibrationShape& shape, const std::filesystem::path& cache_dir) {
  const ModelConfig c = scaled_down(shape.config);
  const int cudnn = attention_library(ctx).version;
  const std::string key = str(
      "v", kVersion, machine_name(ctx), " ", ctx.backend().name, " ", name_of(ctx.isa()), " threads ",
      ctx.num_threads(), " ", c.model_type, " ", c.hidden_size, " ", c.intermediate_size, " ", c.num_attention_heads,
      "/", c.num_key_value_heads, "x", c.head_dim, " vocab ", c.vocab_size, " dtype ", name_of(shape.dtype), " r ",
      shape.lora.r, " dropout ", shape.lora.lora_dropout > 0, " tokens ", measured_tokens(shape), " chunk ",
      scaled_chunk(shape, c), cudnn > 0 ? str(" cuDNN ", cudnn) : "", ctx.backend().copy_out ? " host copies" : "");
  const auto path = cache_dir / "rates" / (hex64(fnv1a(key)) + ".json");
  if (std::ifstream in(path); in) {
    const auto j = nlohmann::json::parse(in, nullptr, false);
    if (j.is_object() && j.contains("key") && j["key"] == key && j.contains("rates") && j["rates"].is_object()) {
      CostModel m;
      bool good = true;
      for (const auto& [name, rate] : j["rates"].items()) {
        good = good && rate.is_number() && rate.get<double>() >= 0;
        if (good) m.set(name, rate.get<double>());
      }
      if (good) return m;
    }
  }
  const CostModel m = calibrate(ctx, shape);
  nlohmann::ordered_json j;
  j["key"] = key;
  for (const auto& [name, rate] : m.rates()) j["rates"][name] = rate;
  try {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, j.dump(1));
  } catch (const std::exception&) {
    // The next run measures again.
  }
  return m;
}

}  // namespace bantam
