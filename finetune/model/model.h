// SPDX-License-Identifier: Apache-2.0
// A base model: its configuration and its frozen weights. Immutable; several trainers may share one.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "../../quant/weight_store.h"
#include "layer_graph.h"

namespace bantam {

struct Model {
  ModelConfig config;
  std::shared_ptr<const WeightStore> store;
  QuantConfig quant;
  std::filesystem::path path;  ///< what it was loaded from; may be empty
};

struct LoadOptions {
  QuantConfig quant;
  std::filesystem::path cache_dir;  ///< where quantised stores are kept; empty: default_cache_dir()
  bool in_memory = false;           ///< no cache, weights in anonymous memory
  std::function<void(double fraction, const std::string& what)> progress;
};

/// $BANTAM_CACHE, else $XDG_CACHE_HOME/bantam, else ~/.cache/bantam.
std::filesystem::path default_cache_dir();

/// A model folder, a folder written by `bantam quantize`, or a .gguf file. The first load quantises into the cache,
/// later ones map it. Error(model): tensors that are missing, unknown or of another shape than the config says.
std::shared_ptr<const Model> load_model(const std::filesystem::path& path, const LoadOptions& options = {});

/// Checks names and shapes of a source against the model's graph; Error(model) lists what is missing or left over.
void check_tensors(const ModelConfig& config, const TensorSource& source, const std::string& where);

/// Whether a folder holds weights that are quantised already.
bool is_quantized_folder(const std::filesystem::path& path);

}  // namespace bantam
