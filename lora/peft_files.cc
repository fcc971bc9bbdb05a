// SPDX-License-Identifier: Apache-2.0
#include "peft_files.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../kernels/error.h"
#include "../quant/safetensors.h"
#include "../quant/tensor_source.h"

namespace bantam {

namespace {

using Json = nlohmann::json;
constexpr std::string_view kPrefix = "base_model.model.";

std::vector<std::string> written_targets(const AdapterSet& adapters, const std::vector<std::string>& all_linears) {
  std::set<std::string> adapted, names;
  for (const auto& a : adapters.adapters()) {
    adapted.insert(a.module);
    names.insert(a.module.substr(a.module.rfind('.') + 1));
  }
  const bool by_name = std::all_of(all_linears.begin(), all_linears.end(), [&](const std::string& l) {
    return adapted.contains(l) == names.contains(l.substr(l.rfind('.') + 1));
  });
  const auto& chosen = by_name ? names : adapted;
  return {chosen.begin(), chosen.end()};
}

Json read_config(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw Error(ErrorCode::model, str(path.string(), ": cannot be opened"),
                "an adapter is a folder with adapter_config.json and adapter_model.safetensors");
  try {
    Json j = Json::parse(in);
    if (!j.is_object())
      throw Error(ErrorCode::model, str(path.string(), ": found ", j.type_name(), ", expected an object"));
    return j;
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::model, str(path.string(), ": not JSON: ", e.what()));
  }
}

LoraConfig parse_config(const Json& j, const std::string& where) {
  const auto refuse = [&](const char* key, const std::string& expected) {
    throw Error(ErrorCode::model, str(where, ": ", key, ": found ", j.at(key).dump(), ", expected ", expected),
                "only plain LoRA adapters on linear modules are supported");
  };
  const auto set = [&](const char* key) { return j.contains(key) && !j.at(key).is_null(); };
  if (set("peft_type") && j.at("peft_type") != "LORA") refuse("peft_type", "\"LORA\"");
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"})
    if (set(key) && j.at(key) != false) refuse(key, "false");
  if (set("bias") && j.at("bias") != "none") refuse("bias", "\"none\"");
  for (const char* key :
       {"modules_to_save", "layers_to_transform", "layer_replication", "trainable_token_indices", "target_parameters"})
    if (set(key) && !j.at(key).empty()) refuse(key, "null");
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (set(key) && !j.at(key).empty()) refuse(key, "{}");
  if (!set("r") || !j.at("r").is_number_integer() || j.at("r") < 1)
    throw Error(ErrorCode::model, str(where, ": r: expected an integer >= 1"));
  if (!set("lora_alpha") || !j.at("lora_alpha").is_number())
    throw Error(ErrorCode::model, str(where, ": lora_alpha: expected a number"));
  LoraConfig c;
  c.r = j.at("r");
  c.lora_alpha = j.at("lora_alpha");
  c.lora_dropout = set("lora_dropout") && j.at("lora_dropout").is_number() ? j.at("lora_dropout").get<double>() : 0.0;
  c.use_rslora = set("use_rslora") && j.at("use_rslora") == true;
  if (set("target_modules")) {
    const Json& t = j.at("target_modules");
    c.target_modules.clear();
    if (t.is_string()) c.target_modules.push_back(t);
    if (t.is_array())
      for (const auto& e : t)
        if (e.is_string()) c.target_modules.push_back(e);
  }
  return c;
}

struct Files {
  std::string where;  // adapter_model.safetensors
  std::shared_ptr<const SafetensorsFile> tensors;
};
Files open_files(const std::filesystem::path& folder) {
  const auto path = folder / "adapter_model.safetensors";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw Error(ErrorCode::model, str(path.string(), ": no such file"),
                "an adapter is a folder with adapter_config.json and adapter_model.safetensors");
  return {path.string(), SafetensorsFile::open(path)};
}

}  // namespace

void save_adapter(const std::filesystem::path& folder, const AdapterSet& adapters,
                  const std::vector<std::string>& all_linears, const PeftInfo& info) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw Error(ErrorCode::io, str(folder.string(), ": cannot be created: ", ec.message()));
  const LoraConfig& c = adapters.config();
  const Json config = {{"alpha_pattern", Json::object()},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path",
                        info.base_model_name_or_path.empty() ? Json(nullptr) : Json(info.base_model_name_or_path)},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", c.lora_alpha == static_cast<double>(static_cast<int64_t>(c.lora_alpha))
                                          ? Json(static_cast<int64_t>(c.lora_alpha))
                                          : Json(c.lora_alpha)},
                       {"lora_dropout", c.lora_dropout},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", c.r},
                       {"rank_pattern", Json::object()},
                       {"revision", nullptr},
                       {"target_modules", written_targets(adapters, all_linears)},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", c.use_rslora}};

  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Parameter& p : adapters.parameters())
    tensors.push_back({std::string(kPrefix) + p.name, "F32", {p.rows, p.cols}});
  SafetensorsWriter writer(folder / "adapter_model.safetensors", tensors, {{"format", "pt"}});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Parameter& p = adapters.parameters()[i];
    writer.write(i, 0, adapters.values().subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.size())));
  }
  writer.finish();
  write_file_atomically(folder / "adapter_config.json", config.dump(2) + "\n");
}

AdapterSet load_adapter(const std::filesystem::path& folder, const std::vector<AdapterSet::Module>& linears,
                        bool allow_zero) {
  const std::string where = (folder / "adapter_config.json").string();
  const LoraConfig config = parse_config(read_config(where), where);
  const Files files = open_files(folder);
  std::set<std::string> have, unmatched;
  for (const auto& e : files.tensors->entries()) {
    std::string_view name = e.name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const size_t cut = std::max(name.rfind(".lora_A.weight") == name.npos ? 0 : name.rfind(".lora_A.weight"),
                                name.rfind(".lora_B.weight") == name.npos ? 0 : name.rfind(".lora_B.weight"));
    const std::string module(name.substr(0, cut));
    const bool known = std::any_of(linears.begin(), linears.end(), [&](const auto& l) { return l.path == module; });
    known ? have.insert(module) : unmatched.insert(e.name);
  }
  if (!unmatched.empty())
    throw Error(ErrorCode::model,
                str(files.where, ": ", unmatched.size(), " tensors fit no linear module of this base, first '",
                    *unmatched.begin(), "'"),
                "is this the base that the adapter was trained on?");
  if (have.empty()) throw Error(ErrorCode::model, str(files.where, ": found no LoRA matrices"));
  std::vector<AdapterSet::Module> modules;
  for (const auto& l : linears)
    if (have.contains(l.path)) modules.push_back(l);
  AdapterSet set(config, modules, 0);
  read_adapter_values(folder, set);
  const bool zero = std::all_of(set.adapters().begin(), set.adapters().end(), [&](const AdapterSet::Adapter& a) {
    const Parameter& p = set.parameters()[static_cast<size_t>(a.b)];
    const auto v = set.values().subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.size()));
    return std::all_of(v.begin(), v.end(), [](float x) { return x == 0; });
  });
  if (zero && !allow_zero)
    throw Error(ErrorCode::model, str(files.where, ": every lora_B is zero, the adapter has no effect"),
                "was it trained?");
  return set;
}

void read_adapter_values(const std::filesystem::path& folder, AdapterSet& adapters) {
  const Files files = open_files(folder);
  std::set<std::string> used;
  for (const Parameter& p : adapters.parameters()) {
    const std::string key = std::string(kPrefix) + p.name;
    const SafetensorsEntry* e = files.tensors->find(key);
    if (!e)
      throw Error(ErrorCode::model, str(files.where, ": no tensor '", key, "'"),
                  "the adapter does not fit this model and these targets");
    if (e->shape != std::vector<int64_t>{p.rows, p.cols})
      throw Error(ErrorCode::model, str(files.where, ": ", key, ": found shape ", shape_text(e->shape), ", expected [",
                                        p.rows, ", ", p.cols, "]"));
    safetensors_decode(*files.tensors, *e, 0, p.size(), adapters.values().data() + p.offset);
    used.insert(key);
  }
  for (const auto& e : files.tensors->entries())
    if (!used.contains(e.name))
      throw Error(ErrorCode::model, str(files.where, ": tensor '", e.name, "' fits no adapter of this run"));
}

}  // namespace bantam
