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
  /// Quantises what is not in the cache on its device, to the same bytes; null or the CPU's: on the host's threads.
  Context* context = nullptr;
  std::function<void(double fraction, const std::string& what)> progress;
};

/// $BANTAM_CACHE, else $XDG_CACHE_HOME/bantam, else ~/.cache/bantam.
std::filesystem::path default_cache_dir();

/// A model folder, a folder written by `bantam quantize`, or a .gguf file. The first load quantises into the cache,
/// later ones map it. Error(model): tensors that are missing, unknown or of another shape than the config says.
std::shared_ptr<const Model> load_model(const std::filesystem::path& path, const LoadOptions& options = {});

/// The tensors that a model of this shape has, as a source would list them; those that are not quantised have
/// `natural`.
std::vector<SourceTensor> expected_tensors(const ModelConfig& config, DType natural);

/// What a model's store will be.
struct PlannedStore {
  size_t bytes = 0;         ///< WeightStore::bytes()
  size_t device_bytes = 0;  ///< WeightStore::device_bytes()
  WeightFormats formats;
  /// Of a device's memory, that quantising there takes and gives back before; 0: nothing is to be quantised.
  size_t quantise_bytes = 0;
};
/// Without loading it, the files opened once: from their headers where `path` is there, else from the shape with bf16
/// embeddings and norms. An f32 or f16 source keeps what is not quantised in f32. `cache_dir`: as in LoadOptions.
PlannedStore planned_store(const ModelConfig& config, const std::filesystem::path& path, const QuantConfig& quant,
                           const std::filesystem::path& cache_dir = {});

/// Checks names and shapes of a source against the model's graph; Error(model) lists what is missing or left over.
void check_tensors(const ModelConfig& config, const TensorSource& source, const std::string& where);

/// Whether a folder holds weights that are quantised already.
bool is_quantized_folder(const std::filesystem::path& path);

}  // namespace bantam
