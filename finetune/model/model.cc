// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../../kernels/error.h"
#include "../../quant/quantiser.h"
#include "../../quant/store_cache.h"

namespace bantam {

namespace {

constexpr size_t kMiB = size_t{1} << 20;

using Shapes = std::map<std::string, std::vector<int64_t>>;

// Every tensor that the graph reads, with its shape.
Shapes expected_shapes(const ModelConfig& c) {
  Shapes out;
  for (const LayerGraph& g : build_model_graph(c, DType::f32, nullptr).stages)
    for (const Op& op : g.ops) {
      const auto width = [&](int v) { return g.values[static_cast<size_t>(v)].width; };
      const std::string name = g.prefix + op.module;
      switch (op.kind) {
        case OpKind::embedding:
          out[name + ".weight"] = {c.vocab_size, c.hidden_size};
          break;
        case OpKind::rms_norm:
          out[name + ".weight"] = {width(op.in[0])};
          break;
        case OpKind::cross_entropy:
          out[name + ".weight"] = {c.vocab_size, width(op.in[0])};
          break;
        case OpKind::linear:
          out[name + ".weight"] = {width(op.out[0]), width(op.in[0])};
          if (op.has_bias) out[name + ".bias"] = {width(op.out[0])};
          break;
        default:
          break;
      }
    }
  return out;
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) out += (i ? ", " : "") + names[i];
  return names.size() > 5 ? str(out, " and ", names.size() - 5, " more") : out;
}

}  // namespace

std::vector<SourceTensor> expected_tensors(const ModelConfig& config, DType natural) {
  std::vector<SourceTensor> out;
  for (const auto& [name, shape] : expected_shapes(config)) {
    SourceTensor t;
    t.name = name;
    t.shape = shape;
    t.natural = natural;
    out.push_back(std::move(t));
  }
  return out;
}

PlannedStore planned_store(const ModelConfig& config, const std::filesystem::path& path, const QuantConfig& quant,
                           const std::filesystem::path& cache_dir) {
  if (!path.empty() && is_quantized_folder(path)) {
    const auto store = WeightStore::open(path);
    return {store->bytes(), store->device_bytes(), store->formats(), 0};
  }
  PlannedStore planned;
  const auto add = [&](const std::vector<SourceTensor>& tensors) {
    for (const SourceTensor& t : tensors) {
      planned.bytes += stored_bytes(t, quant);
      planned.device_bytes += device_stored_bytes(t, quant);
      if (t.shape.size() >= 2) planned.formats[t.name] = stored_format(t, quant);
    }
  };
  if (path.empty()) {
    add(expected_tensors(config, DType::bf16));
    return planned;
  }
  const auto source = open_model_files(path);
  add(source->tensors());
  const auto dir = cache_dir.empty() ? default_cache_dir() : cache_dir;
  if (quant.type == QuantType::nf4 && !store_is_cached(*source, quant, dir))
    planned.quantise_bytes = quantise_device_bytes(*source);
  return planned;
}

std::filesystem::path default_cache_dir() {
  if (const char* p = std::getenv("BANTAM_CACHE"); p && *p) return p;
  if (const char* p = std::getenv("XDG_CACHE_HOME"); p && *p) return std::filesystem::path(p) / "bantam";
  if (const char* p = std::getenv("HOME"); p && *p) return std::filesystem::path(p) / ".cache" / "bantam";
  return std::filesystem::temp_directory_path() / "bantam-cache";
}

void check_tensors(const ModelConfig& config, const TensorSource& source, const std::string& where) {
  const Shapes expected = expected_shapes(config);
  std::vector<std::string> missing, unknown;
  for (const auto& [name, shape] : expected) {
    const int64_t i = source.find(name);
    if (i < 0) {
      missing.push_back(name);
      continue;
    }
    const SourceTensor& t = source.tensors()[static_cast<size_t>(i)];
    if (t.shape != shape)
      throw Error(ErrorCode::model,
                  str(t.file, ": ", name, ": found shape ", shape_text(t.shape), ", expected ", shape_text(shape)),
                  "config and weights are not of one model");
  }
  for (const SourceTensor& t : source.tensors()) {
    if (expected.contains(t.name) || t.name.ends_with(".rotary_emb.inv_freq"))
      continue;                                                              // old exports store that constant
    if (config.tie_word_embeddings && t.name == "lm_head.weight") continue;  // the tie makes it the embedding
    unknown.push_back(t.name);
  }
  if (!missing.empty())
    throw Error(ErrorCode::model, str(where, ": ", missing.size(), " tensors are missing: ", list(missing)),
                "is the download complete?");
  if (!unknown.empty())
    throw Error(ErrorCode::model,
                str(where, ": ", unknown.size(), " tensors have no place in a '", config.model_type,
                    "' model: ", list(unknown)),
                "this variant of the model is not supported");
}

bool is_quantized_folder(const std::filesystem::path& path) {
  std::ifstream in(path / "config.json", std::ios::binary);
  if (!in) return false;
  const auto j = nlohmann::json::parse(in, nullptr, false);
  return j.is_object() && j.contains("quantization_config") && j["quantization_config"].is_object();
}

std::shared_ptr<const Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  auto model = std::make_shared<Model>();
  model->config = load_model_config(path);
  model->path = path;
  model->quant = options.quant;
  if (is_quantized_folder(path)) {
    model->store = WeightStore::open(path);
    return model;
  }
  const auto source = open_model_files(path);
  check_tensors(model->config, *source, path.string());
  if (options.in_memory) {
    model->store = WeightStore::in_memory(*source, options.quant, options.context);
  } else {
    const auto dir = options.cache_dir.empty() ? default_cache_dir() : options.cache_dir;
    const auto progress = [&](const StoreProgress& p) {
      if (!options.progress || p.total == 0) return;
      std::string what = options.quant.type == QuantType::nf4 ? "quantizing to NF4" : "converting";
      if (p.device_bytes > 0)
        what += str(" on ", options.context->device_name(), ", with ", (p.device_bytes + kMiB - 1) / kMiB,
                    " MiB of its memory");
      options.progress(static_cast<double>(p.done) / static_cast<double>(p.total), what);
    };
    model->store = cached_store(*source, options.quant, dir, progress, 0, options.context);
  }
  return model;
}

}  // namespace bantam
