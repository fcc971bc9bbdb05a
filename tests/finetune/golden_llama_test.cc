// SPDX-License-Identifier: Apache-2.0
// The whole chain against HF transformers + PEFT in float32 (tests/golden/make_llama_golden.py): loss, per-token
// losses, every adapter gradient, and the adapter after five AdamW steps; unquantised and NF4, tied and untied head.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "finetune/train/generator.h"
#include "finetune/train/trainer.h"
#include "lora/peft_files.h"
#include "quant/safetensors.h"

using namespace bantam;
namespace fs = std::filesystem;

namespace {

nlohmann::json read_json(const fs::path& p) {
  std::ifstream in(p);
  REQUIRE_MESSAGE(in, p.string());
  return nlohmann::json::parse(in);
}

std::vector<Sample> golden_samples(const fs::path& root) {
  std::vector<Sample> out;
  const auto batch = read_json(root / "batch.json");
  for (const auto& s : batch.at("sequences")) {
    Sample x;
    x.id = out.size();
    x.ids = s.at("ids").get<std::vector<int32_t>>();
    for (const auto& l : s.at("labels")) x.trained.push_back(l.get<int>() != -100);
    x.trained[0] = 0;
    out.push_back(std::move(x));
  }
  return out;
}

double norm(std::span<const float> v) {
  double s = 0;
  for (const float x : v) s += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(s);
}

double relative_distance(std::span<const float> got, std::span<const float> want) {
  double s = 0;
  for (size_t i = 0; i < got.size(); ++i) s += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
  return std::sqrt(s) / norm(want);
}

std::vector<float> read_tensor(const SafetensorsFile& f, const std::string& name, int64_t n) {
  const auto* e = f.find(name);
  REQUIRE_MESSAGE(e, name);
  std::vector<float> v(static_cast<size_t>(n));
  safetensors_decode(f, *e, 0, n, v.data());
  return v;
}

void check(const std::string& base, const std::string& variant, CheckpointMode mode) {
  CAPTURE(base);
  CAPTURE(variant);
  const fs::path root = fs::path(BANTAM_TESTS_DIR) / "golden" / "llama", folder = root / base / variant;
  const auto golden = read_json(folder / "golden.json");
  const auto model = load_model(
      root / base / "base", {.quant = {variant == "nf4" ? QuantType::nf4 : QuantType::none, true}, .in_memory = true});
  AdapterSet adapters = load_adapter(root / base / "adapter", linear_modules(model->config));
  CHECK(adapters.config().r == 8);
  CHECK(adapters.config().scale() == 2.0f);
  const std::vector<float> start(adapters.values().begin(), adapters.values().end());

  Context ctx({.num_threads = 2});
  const auto samples = golden_samples(root);
  const Batch batch = make_batch(samples, {0, 1, 2});
  Trainer trainer(ctx, model, adapters,
                  {.dtype = DType::f32,
                   .checkpointing = {mode, {}},
                   .optimizer = {.weight_decay = 0.01, .max_grad_norm = 0},
                   .poison_dead = true},
                  batch.tokens());

  // Per-token losses: ours at row i - 1 is the reference's at token i.
  std::vector<float> per_token;
  const EvalResult eval = trainer.evaluate(batch, &per_token);
  size_t row = 0;
  for (size_t s = 0; s < samples.size(); ++s)
    for (size_t i = 0; i < samples[s].ids.size(); ++i, ++row) {
      const double want = i + 1 < samples[s].ids.size() ? golden.at("token_losses")[s][i + 1].get<double>() : 0.0;
      CHECK(per_token[row] == doctest::Approx(want).epsilon(1e-5).scale(1.0));
    }
  const double loss = golden.at("loss").get<double>();
  CHECK(std::abs(eval.loss - loss) <= 1e-5 * loss);

  const StepBatch step{{batch}, batch.total_weight()};
  const auto grads = SafetensorsFile::open(folder / "grads.safetensors");
  for (int64_t k = 0; k < 5; ++k) {
    const StepResult r = trainer.train_step(step, k, 1e-3, 0);
    const double want = golden.at("losses")[static_cast<size_t>(k)].get<double>();
    CHECK(std::abs(r.loss - want) <= 1e-5 * want);
    if (k > 0) continue;
    for (size_t p = 0; p < adapters.parameters().size(); ++p) {
      const Parameter& q = adapters.parameters()[p];
      CAPTURE(q.name);
      const auto expected = read_tensor(*grads, "base_model.model." + q.name, q.size());
      CHECK(relative_distance(adapters.grads().subspan(static_cast<size_t>(q.offset), static_cast<size_t>(q.size())),
                              expected) <= 1e-4);
    }
  }
  const auto after = SafetensorsFile::open(folder / "after5.safetensors");
  std::vector<float> moved, expected_move;
  for (const Parameter& q : adapters.parameters()) {
    const auto want = read_tensor(*after, "base_model.model." + q.name, q.size());
    for (int64_t i = 0; i < q.size(); ++i) {
      const auto at = static_cast<size_t>(q.offset + i);
      moved.push_back(adapters.values()[at] - start[at]);
      expected_move.push_back(want[static_cast<size_t>(i)] - start[at]);
    }
  }
  CHECK(relative_distance(moved, expected_move) <= 1e-3);
  CHECK(std::abs(trainer.evaluate(batch).loss - golden.at("loss_after").get<double>()) <= 2e-5 * loss);
}

}  // namespace

TEST_CASE("f32: loss, gradients and updates equal transformers + PEFT") {
  for (const char* base : {"tied", "untied"})
    for (const auto mode : {CheckpointMode::off, CheckpointMode::full}) check(base, "f32", mode);
}

TEST_CASE("NF4: loss, gradients and updates equal transformers + PEFT on bitsandbytes' weights") {
  for (const char* base : {"tied", "untied"}) check(base, "nf4", CheckpointMode::selective);
}

TEST_CASE("generation's logits equal transformers") {
  const fs::path root = fs::path(BANTAM_TESTS_DIR) / "golden" / "llama";
  const auto samples = golden_samples(root);
  for (const std::string base : {"tied", "untied"}) {
    const auto model = load_model(root / base / "base", {.quant = {QuantType::none, true}, .in_memory = true});
    AdapterSet adapters = load_adapter(root / base / "adapter", linear_modules(model->config));
    Context ctx({.num_threads = 2});
    Generator g(ctx, model, &adapters, DType::f32, 64);
    const Tensor got = g.logits(samples[1].ids);
    const auto file = SafetensorsFile::open(root / base / "f32" / "logits.safetensors");
    const auto want = read_tensor(*file, file->entries()[0].name, got.rows() * got.cols());
    CHECK(relative_distance({got.data<float>(), want.size()}, want) <= 1e-5);
    // One token at a time gives the same bits as all at once.
    g.reset();
    for (size_t i = 0; i < samples[1].ids.size(); ++i) {
      const auto logits = g.append({&samples[1].ids[i], 1});
      CHECK(std::equal(logits.begin(), logits.end(), got.data<float>() + static_cast<int64_t>(i) * got.cols()));
    }
  }
}

// tests/golden/check_adapter.py loads what this writes in PEFT and compares logits; its outcome is recorded in
// tests/golden/llama/adapter_check.json. BANTAM_KEEP_ADAPTER=DIR keeps the folder for it.
TEST_CASE("an adapter trained here is written whole and gives the same logits when read again") {
  const fs::path root = fs::path(BANTAM_TESTS_DIR) / "golden" / "llama";
  const char* keep = std::getenv("BANTAM_KEEP_ADAPTER");
  const fs::path out =
      keep ? fs::path(keep) : fs::temp_directory_path() / ("bantam-adapter-" + std::to_string(::getpid()));
  const auto model = load_model(root / "untied" / "base", {.quant = {QuantType::none, true}, .in_memory = true});
  AdapterSet adapters = load_adapter(root / "untied" / "adapter", linear_modules(model->config));
  Context ctx({.num_threads = 2});
  const auto samples = golden_samples(root);
  Trainer trainer(ctx, model, adapters, {.dtype = DType::f32}, 64);
  for (int64_t k = 0; k < 3; ++k) trainer.train_step(make_step(samples, {{0, 1, 2}}), k, 1e-2, 0);
  std::vector<std::string> paths;
  for (const auto& m : linear_modules(model->config)) paths.push_back(m.path);
  save_adapter(out, adapters, paths, {"tests/golden/llama/untied/base"});

  const auto logits_of = [&](AdapterSet& a) {
    return Generator(ctx, model, &a, DType::f32, 64).logits(samples[1].ids);
  };
  const Tensor logits = logits_of(adapters);
  AdapterSet again = load_adapter(out, linear_modules(model->config));
  const Tensor same = logits_of(again);
  CHECK(std::equal(logits.data<float>(), logits.data<float>() + logits.rows() * logits.cols(), same.data<float>()));
  nlohmann::json j;
  j["ids"] = samples[1].ids;
  for (int64_t r = 0; r < logits.rows(); ++r)
    j["logits"].push_back(std::vector<float>(logits.view().row<float>(r), logits.view().row<float>(r) + logits.cols()));
  std::ofstream(out / "logits.json") << j.dump();
  if (!keep) fs::remove_all(out);
}

TEST_CASE("PEFT's outcome on such an adapter is on record") {
  const auto j = read_json(fs::path(BANTAM_TESTS_DIR) / "golden" / "llama" / "adapter_check.json");
  CHECK(j.at("passed") == true);
  CHECK(j.at("keys").at("matched") == 28);
  CHECK(j.at("adapter_effect").get<double>() > 1);
}
