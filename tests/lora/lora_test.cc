// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "lora/peft_files.h"
#include "quant/safetensors.h"
#include "temp_dir.h"

using namespace bantam;
using bantam::testing::TempDir;
namespace fs = std::filesystem;

namespace {

const std::vector<AdapterSet::Module> kModules = {{"model.layers.0.self_attn.q_proj", 6, 4},
                                                  {"model.layers.0.mlp.up_proj", 6, 10},
                                                  {"model.layers.1.self_attn.q_proj", 6, 4},
                                                  {"model.layers.1.mlp.up_proj", 6, 10}};
std::vector<std::string> paths() {
  std::vector<std::string> p;
  for (const auto& m : kModules) p.push_back(m.path);
  return p;
}

AdapterSet trained(const LoraConfig& c = {.r = 2, .lora_alpha = 3}) {
  AdapterSet a(c, kModules, 1);
  for (size_t i = 0; i < a.values().size(); ++i) a.values()[i] += static_cast<float>(i) * 1e-3f;
  return a;
}

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("scale is alpha / r, or alpha / sqrt(r)") {
  CHECK(LoraConfig{.r = 8, .lora_alpha = 16}.scale() == 2.0f);
  CHECK(LoraConfig{.r = 8, .lora_alpha = 16, .use_rslora = true}.scale() == doctest::Approx(5.65685).epsilon(1e-5));
}

TEST_CASE("target modules: all, names, full paths, regex, and what matches nothing") {
  CHECK(match_target_modules({"all-linear"}, paths()) == paths());
  CHECK(match_target_modules({"q_proj"}, paths()) == std::vector<std::string>{kModules[0].path, kModules[2].path});
  CHECK(match_target_modules({"self_attn.q_proj", "model.layers.1.mlp.up_proj"}, paths()) ==
        std::vector<std::string>{kModules[0].path, kModules[2].path, kModules[3].path});
  CHECK(match_target_modules({".*\\.1\\..*_proj"}, paths()) ==
        std::vector<std::string>{kModules[2].path, kModules[3].path});
  CHECK(message([] {
          match_target_modules({"q_proj", "k_proj"}, paths());
        }) == "lora_target_modules: 'k_proj' matches no linear module of this model");
  CHECK(message([] { match_target_modules({"proj"}, paths()); }).find("matches no linear module") != std::string::npos);
  CHECK(message([] { match_target_modules({"(q_proj"}, paths()); }).find("is not a regular expression") !=
        std::string::npos);
  CHECK(message([] { match_target_modules({}, paths()); }) == "lora_target_modules: empty list");
}

TEST_CASE("initialisation: A bounded by 1 / sqrt(in) and alive, B zero, each a function of seed and name only") {
  const AdapterSet all({.r = 4}, kModules, 9);
  const AdapterSet one({.r = 4}, {kModules[3]}, 9);
  const auto& a = *all.find(kModules[3].path);
  const ConstTensorView mine = all.value(a.a), alone = one.value(one.find(kModules[3].path)->a);
  double sum = 0;
  for (int64_t i = 0; i < mine.rows * mine.cols; ++i) {
    CHECK(mine.row<float>(0)[i] == alone.row<float>(0)[i]);
    CHECK(std::abs(mine.row<float>(0)[i]) <= 1 / std::sqrt(6.0f));
    sum += std::abs(static_cast<double>(mine.row<float>(0)[i]));
  }
  CHECK(sum > 1);
  const ConstTensorView b = all.value(a.b);
  for (int64_t i = 0; i < b.rows * b.cols; ++i) CHECK(b.row<float>(0)[i] == 0);
  CHECK(AdapterSet({.r = 4}, kModules, 10).value(0).row<float>(0)[0] != all.value(0).row<float>(0)[0]);
  CHECK(all.find("model.layers.0.self_attn.k_proj") == nullptr);
}

TEST_CASE("PEFT folder: round trip, names, config") {
  const TempDir f;
  const AdapterSet a = trained();
  save_adapter(f.path(), a, paths(), {"org/base"});
  const AdapterSet b = load_adapter(f.path(), kModules);
  CHECK(b.config().r == 2);
  CHECK(b.config().lora_alpha == 3);
  CHECK(std::equal(a.values().begin(), a.values().end(), b.values().begin(), b.values().end()));
  const auto file = SafetensorsFile::open(f.path() / "adapter_model.safetensors");
  const auto* e = file->find("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
  REQUIRE(e);
  CHECK(e->shape == std::vector<int64_t>{4, 2});
  std::ifstream in(f.path() / "adapter_config.json");
  const std::string config{std::istreambuf_iterator<char>(in), {}};
  for (const char* part : {"\"peft_type\": \"LORA\"", "\"r\": 2", "\"lora_alpha\": 3,", "\"q_proj\"", "\"up_proj\"",
                           "org/base", "\"task_type\": \"CAUSAL_LM\""})
    CHECK_MESSAGE(config.find(part) != std::string::npos, part);
}

TEST_CASE("PEFT folder: what does not fit is an error") {
  const TempDir f;
  save_adapter(f.path(), trained(), paths(), {});
  const std::vector<AdapterSet::Module> fewer(kModules.begin(), kModules.begin() + 2);
  CHECK(message([&] { load_adapter(f.path(), fewer); }).find("4 tensors fit no linear module of this base") !=
        std::string::npos);
  auto wider = kModules;
  wider[1].out = 11;
  CHECK(message([&] { load_adapter(f.path(), wider); }).find("found shape [10, 2], expected [11, 2]") !=
        std::string::npos);
  CHECK(message([&] { load_adapter(f.path() / "nothing", kModules); }).find("adapter_config.json: cannot be opened") !=
        std::string::npos);
  save_adapter(f.path(), AdapterSet({.r = 2}, kModules, 1), paths(), {});
  CHECK(message([&] { load_adapter(f.path(), kModules); }).find("every lora_B is zero") != std::string::npos);
  const auto config_with = [&](const std::string& extra) {
    std::ofstream(f.path() / "adapter_config.json")
        << "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, " << extra << "}";
  };
  config_with("\"use_dora\": true");
  CHECK(message([&] { load_adapter(f.path(), kModules, true); }).find("use_dora: found true, expected false") !=
        std::string::npos);
  config_with("\"rank_pattern\": {\"q_proj\": 4}");
  CHECK(message([&] { load_adapter(f.path(), kModules, true); }).find("rank_pattern") != std::string::npos);
  config_with("\"bias\": \"none\"");
  CHECK(load_adapter(f.path(), kModules, true).size() > 0);
}
