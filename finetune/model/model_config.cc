// SPDX-License-Identifier: Apache-2.0
#include "model_config.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "../../kernels/error.h"
#include "../../quant/gguf.h"

namespace bantam {

namespace {

using Json = nlohmann::json;

[[noreturn]] void bad(const std::string& where, const std::string& key, const std::string& found,
                      const std::string& expected, std::string hint = {}) {
  throw Error(ErrorCode::model, str(where, ": ", key, ": found ", found, ", expected ", expected), std::move(hint));
}

// Typed reads from one JSON object; a key that is null counts as absent.
struct Reader {
  const Json& object;
  const std::string& where;
  std::string path;

  const Json* find(const char* key) const {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
  int64_t integer(const char* key, int64_t fallback, bool required = false) const {
    const Json* v = find(key);
    if (!v) {
      if (required) bad(where, path + key, "nothing", "an integer");
      return fallback;
    }
    if (!v->is_number_integer()) bad(where, path + key, v->dump(), "an integer");
    return v->get<int64_t>();
  }
  double number(const char* key, double fallback) const {
    const Json* v = find(key);
    if (!v) return fallback;
    if (!v->is_number()) bad(where, path + key, v->dump(), "a number");
    return v->get<double>();
  }
  bool boolean(const char* key, bool fallback) const {
    const Json* v = find(key);
    if (!v) return fallback;
    if (!v->is_boolean()) bad(where, path + key, v->dump(), "true or false");
    return v->get<bool>();
  }
  std::string text(const char* key, const std::string& fallback) const {
    const Json* v = find(key);
    if (!v) return fallback;
    if (!v->is_string()) bad(where, path + key, v->dump(), "a text");
    return v->get<std::string>();
  }
};

void read_rope(const Reader& top, ModelConfig& c) {
  const double top_theta = top.number("rope_theta", -1);
  double theta = top_theta;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* v = top.find(name);
    if (!v) continue;
    if (!v->is_object()) bad(top.where, name, v->dump(), "an object");
    const Reader r{*v, top.where, std::string(name) + "."};
    const double inner = r.number("rope_theta", -1);
    if (inner > 0 && top_theta > 0 && inner != top_theta)
      bad(top.where, "rope_theta", str(top_theta, " at the top and ", inner, " in ", name), "one value",
          "make the two agree");
    if (inner > 0) theta = inner;
    const std::string type = r.text("rope_type", r.text("type", "default"));
    if (type == "default") continue;
    if (type != "llama3") bad(top.where, r.path + "rope_type", "'" + type + "'", "default or llama3");
    c.rope_scaling.factor = r.number("factor", 8);
    c.rope_scaling.low_freq_factor = r.number("low_freq_factor", 1);
    c.rope_scaling.high_freq_factor = r.number("high_freq_factor", 4);
    c.rope_scaling.original_max_position_embeddings = r.integer("original_max_position_embeddings", 8192);
  }
  c.rope_theta = theta > 0 ? theta : 10000.0;  // the family's documented default when the file has none
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::model, str(path.string(), ": cannot be opened"), "is this a model folder?");
  return {std::istreambuf_iterator<char>(in), {}};
}

ModelConfig from_gguf(const GgufFile& f) {
  const std::string where = f.path().string();
  const std::string arch(f.architecture());
  if (arch != "llama") bad(where, "general.architecture", "'" + arch + "'", "llama");
  ModelConfig c;
  c.model_type = arch;
  const auto key = [&](const char* k) { return arch + "." + k; };
  c.hidden_size = f.integer(key("embedding_length"));
  c.intermediate_size = f.integer(key("feed_forward_length"));
  c.num_hidden_layers = f.integer(key("block_count"));
  c.num_attention_heads = f.integer(key("attention.head_count"));
  c.num_key_value_heads = f.find_integer(key("attention.head_count_kv")).value_or(c.num_attention_heads);
  if (c.num_attention_heads < 1) bad(where, key("attention.head_count"), str(c.num_attention_heads), ">= 1");
  c.head_dim = f.find_integer(key("attention.key_length")).value_or(c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings = f.find_integer(key("context_length")).value_or(2048);
  c.rms_norm_eps = f.number(key("attention.layer_norm_rms_epsilon"));
  c.rope_theta = f.find_number(key("rope.freq_base")).value_or(10000.0);
  if (const auto scaling = f.find_text(key("rope.scaling.type")); scaling && *scaling != "none")
    bad(where, key("rope.scaling.type"), "'" + std::string(*scaling) + "'", "none");
  if (f.find_tensor("rope_freqs.weight"))
    bad(where, "rope_freqs.weight", "a tensor of scaled rope frequencies", "none",
        "use the model's HF folder, whose config.json says how they are scaled");
  const GgufTensor* embed = f.find_tensor("token_embd.weight");
  if (!embed) bad(where, "token_embd.weight", "no such tensor", "the embedding");
  c.vocab_size = embed->rows();
  c.tie_word_embeddings = f.find_tensor("output.weight") == nullptr;
  c.attention_bias = f.find_tensor("blk.0.attn_q.bias") != nullptr;
  c.mlp_bias = f.find_tensor("blk.0.ffn_gate.bias") != nullptr;
  c.name = std::string(f.find_text("general.name").value_or(""));
  if (const auto url =
          f.find_text("general.source.url").value_or(f.find_text("general.base_model.0.repo_url").value_or(""));
      url.starts_with("https://huggingface.co/"))
    c.hf_base = std::string(url.substr(23));
  c.check(where);
  return c;
}

}  // namespace

std::vector<double> ModelConfig::rope_inv_freq() const {
  std::vector<double> f(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < f.size(); ++i) {
    double v = std::pow(rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (rope_scaling.factor != 1) {  // Llama 3: wavelengths over the old context are stretched, a ramp in between
      const double wavelength = 2 * std::numbers::pi / v,
                   old = static_cast<double>(rope_scaling.original_max_position_embeddings);
      const double low = old / rope_scaling.low_freq_factor, high = old / rope_scaling.high_freq_factor;
      if (wavelength > low) {
        v /= rope_scaling.factor;
      } else if (wavelength > high) {
        const double smooth = (old / wavelength - rope_scaling.low_freq_factor) /
                              (rope_scaling.high_freq_factor - rope_scaling.low_freq_factor);
        v = (1 - smooth) * v / rope_scaling.factor + smooth * v;
      }
    }
    f[i] = v;
  }
  return f;
}

void ModelConfig::check(const std::string& where) const {
  constexpr int64_t kMost = int64_t{1} << 24;
  const auto in_range = [&](const char* key, int64_t v) {
    if (v < 1 || v > kMost) bad(where, key, str(v), str("1 to ", kMost));
  };
  in_range("vocab_size", vocab_size);
  in_range("hidden_size", hidden_size);
  in_range("intermediate_size", intermediate_size);
  if (num_hidden_layers < 1 || num_hidden_layers > 10000)
    bad(where, "num_hidden_layers", str(num_hidden_layers), "1 to 10000");
  in_range("num_attention_heads", num_attention_heads);
  in_range("num_key_value_heads", num_key_value_heads);
  in_range("max_position_embeddings", max_position_embeddings);
  if (num_attention_heads % num_key_value_heads != 0)
    bad(where, "num_key_value_heads", str(num_key_value_heads),
        str("a divisor of num_attention_heads ", num_attention_heads));
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > 1024)
    bad(where, "head_dim", str(head_dim), "an even number up to 1024");
  if (!(rms_norm_eps > 0 && rms_norm_eps < 1))
    bad(where, "rms_norm_eps", str(rms_norm_eps), "a number between 0 and 1");
  if (!(rope_theta > 0) || !std::isfinite(rope_theta)) bad(where, "rope_theta", str(rope_theta), "a positive number");
  if (!(rope_scaling.factor > 0) || !(rope_scaling.low_freq_factor > 0) ||
      rope_scaling.high_freq_factor <= rope_scaling.low_freq_factor ||
      rope_scaling.original_max_position_embeddings < 1)
    bad(where, "rope_scaling", "impossible factors", "factor > 0 and low_freq_factor < high_freq_factor");
}

ModelConfig parse_model_config(std::string_view json, const std::string& where) {
  Json j;
  try {
    j = Json::parse(json);
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::model, str(where, ": not JSON: ", e.what()), "is the file complete?");
  }
  if (!j.is_object()) bad(where, "top", j.type_name(), "an object");
  const Reader r{j, where, ""};
  ModelConfig c;
  c.model_type = r.text("model_type", "");
  if (c.model_type != "llama")
    bad(where, "model_type", "'" + c.model_type + "'", "llama", "other families are not supported by this version");
  c.vocab_size = r.integer("vocab_size", 0, true);
  c.hidden_size = r.integer("hidden_size", 0, true);
  c.intermediate_size = r.integer("intermediate_size", 0, true);
  c.num_hidden_layers = r.integer("num_hidden_layers", 0, true);
  c.num_attention_heads = r.integer("num_attention_heads", 0, true);
  if (c.num_attention_heads < 1) bad(where, "num_attention_heads", str(c.num_attention_heads), ">= 1");
  c.num_key_value_heads = r.integer("num_key_value_heads", c.num_attention_heads);
  if (c.num_key_value_heads < 1) bad(where, "num_key_value_heads", str(c.num_key_value_heads), ">= 1");
  c.head_dim = r.integer("head_dim", c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings = r.integer("max_position_embeddings", 2048);
  c.rms_norm_eps = r.number("rms_norm_eps", 1e-6);
  c.tie_word_embeddings = r.boolean("tie_word_embeddings", false);
  c.attention_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  if (const std::string act = r.text("hidden_act", "silu"); act != "silu" && act != "swish")
    bad(where, "hidden_act", "'" + act + "'", "silu");
  if (r.find("sliding_window")) bad(where, "sliding_window", r.find("sliding_window")->dump(), "null");
  if (const double scale = r.number("logit_scale", 1); scale != 1) bad(where, "logit_scale", str(scale), "1");
  read_rope(r, c);
  c.name = c.hf_base = r.text("_name_or_path", "");
  c.check(where);
  return c;
}

ModelConfig load_model_config(const std::filesystem::path& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(model, ignored))
    throw Error(ErrorCode::model, str(model.string(), ": no such file or folder"),
                "base_model is a model folder or a .gguf file");
  if (!std::filesystem::is_directory(model, ignored)) return from_gguf(*GgufFile::open(model));
  const auto path = model / "config.json";
  if (!std::filesystem::exists(path, ignored))
    throw Error(ErrorCode::model, str(model.string(), ": found no config.json, expected a model folder"),
                "base_model is a folder with config.json and *.safetensors, or a .gguf file");
  return parse_model_config(read_file(path), path.string());
}

std::string ModelConfig::to_json() const {
  Json j = {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", model_type},
            {"vocab_size", vocab_size},
            {"hidden_size", hidden_size},
            {"intermediate_size", intermediate_size},
            {"num_hidden_layers", num_hidden_layers},
            {"num_attention_heads", num_attention_heads},
            {"num_key_value_heads", num_key_value_heads},
            {"head_dim", head_dim},
            {"max_position_embeddings", max_position_embeddings},
            {"rms_norm_eps", rms_norm_eps},
            {"rope_theta", rope_theta},
            {"tie_word_embeddings", tie_word_embeddings},
            {"attention_bias", attention_bias},
            {"mlp_bias", mlp_bias},
            {"hidden_act", "silu"},
            {"torch_dtype", "bfloat16"}};
  if (rope_scaling.factor != 1)
    j["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", rope_scaling.factor},
                         {"low_freq_factor", rope_scaling.low_freq_factor},
                         {"high_freq_factor", rope_scaling.high_freq_factor},
                         {"original_max_position_embeddings", rope_scaling.original_max_position_embeddings}};
  if (!hf_base.empty()) j["_name_or_path"] = hf_base;
  return j.dump(2) + "\n";
}

}  // namespace bantam
