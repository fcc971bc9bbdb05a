// SPDX-License-Identifier: Apache-2.0
// The frozen weights of a model, in the form that kernels read. On the CPU they are mapped read-only from a folder in
// bitsandbytes' layout, so the page cache is the only copy; a lease says which layer is in use.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../kernels/backend.h"
#include "../kernels/weight_view.h"
#include "tensor_source.h"

namespace bantam {

enum class QuantType : uint8_t { none, nf4 };

/// How the linear layers are stored. Embeddings, lm_head, norms and biases keep the source precision (f16 becomes f32;
/// norms and biases are always given as f32).
struct QuantConfig {
  QuantType type = QuantType::nf4;
  bool double_quant = true;
};

/// Whether a tensor is quantised: a matrix of model.layers.N whose name ends in _proj.weight.
bool is_quantised_tensor(const SourceTensor& t);

/// What a tensor takes in a store: WeightStore::bytes() is the sum of these.
size_t stored_bytes(const SourceTensor& t, const QuantConfig& quant);
/// What it takes in the memory of a device: WeightStore::device_bytes() is the sum of these.
size_t device_stored_bytes(const SourceTensor& t, const QuantConfig& quant);
/// How a matrix is kept in a store.
WeightFormat stored_format(const SourceTensor& t, const QuantConfig& quant);

/// How each matrix of a model is stored, by its full name.
using WeightFormats = std::map<std::string, WeightFormat, std::less<>>;

class WeightStore;

/// The weights of one layer (or of the top: embedding, final norm, head) for as long as this object lives.
class WeightLease {
 public:
  WeightLease() = default;
  /// A matrix by its name within the layer, e.g. "self_attn.q_proj.weight"; top: "model.embed_tokens.weight",
  /// "lm_head.weight". Error(model) naming the tensor when there is none.
  const WeightView& matrix(std::string_view name) const;
  /// A vector (norm weight, bias) as f32; Error(model) when there is none.
  std::span<const float> vector(std::string_view name) const;
  bool has(std::string_view name) const;

 private:
  friend class WeightStore;
  std::shared_ptr<const WeightStore> store_;
  std::string prefix_;
};

class WeightStore : public std::enable_shared_from_this<WeightStore> {
 public:
  static constexpr int kTop = -1;  ///< the pseudo-layer of tensors outside model.layers.N

  /// Maps a folder written by write_store(), by bitsandbytes (NF4, blocks of 64), or a plain safetensors folder; under
  /// a second, reads headers only. Error(model) naming the tensor when a part is missing or does not fit the others.
  static std::shared_ptr<const WeightStore> open(const std::filesystem::path& folder);
  /// Quantises into memory (tests, small models, no cache). `device`: as StoreOptions::device.
  static std::shared_ptr<const WeightStore> in_memory(const TensorSource& source, const QuantConfig& quant,
                                                      Context* device = nullptr);

  /// A copy in a backend's memory: matrices as they are stored, vectors as f32. Views then hold device pointers. For a
  /// backend that works on host memory, this store itself. Error(does_not_fit).
  std::shared_ptr<const WeightStore> on(const Backend& backend) const;

  WeightLease acquire(int layer) const;
  /// Hint that `layer` is next (madvise WILLNEED on mapped stores); returns at once.
  void prefetch(int layer) const;
  /// Bytes of all weights as stored.
  size_t bytes() const;
  /// Bytes that it takes in the memory of a device: see on().
  size_t device_bytes() const;
  /// Whether every matrix is file-backed (not anonymous memory). Vectors that are not f32 in the file are small copies.
  bool mapped() const;
  /// Number of layers: the greatest N of model.layers.N + 1.
  int layers() const;
  /// Full names of all tensors, sorted; quantised ones once, without their parts.
  std::vector<std::string> names() const;
  WeightFormats formats() const;
  /// A matrix or a vector by its full name; null or empty when there is none.
  const WeightView* find_matrix(std::string_view name) const;
  std::span<const float> find_vector(std::string_view name) const;
  /// Identifies the content: the files' path, size, mtime and header hash, or the source's.
  const std::string& fingerprint() const;

  struct Entry;
  struct Impl;
  explicit WeightStore(std::unique_ptr<Impl> impl);  ///< by open() and in_memory()
  ~WeightStore();

 private:
  friend class WeightLease;
  std::unique_ptr<Impl> impl_;
};

struct StoreProgress {
  size_t done = 0, total = 0;  ///< tensors
  std::string_view tensor;     ///< the one just finished
  size_t device_bytes = 0;     ///< that quantising holds of the device; 0: on the host
};

struct StoreOptions {
  int threads = 0;  ///< 0: all of the machine
  /// Quantises, to the same bytes; null or the CPU: the threads do. Error(device), Error(does_not_fit): nothing else is
  /// tried. A slab or two of its memory is held meanwhile.
  Context* device = nullptr;
  std::map<std::string, std::string> files;  ///< further files of the folder, e.g. config.json: plain name -> content
  std::function<void(const StoreProgress&)> progress;  ///< called by the writing thread; may throw to stop
};

/// Writes a folder that bitsandbytes and transformers load as it is, and that WeightStore::open maps. Matrices that are
/// not quantised are stored as bf16 when their source is, else as f32. Holds one quantised matrix and a few slabs at a
/// time. The weights' file appears last, by renaming: a folder with model.safetensors is complete.
/// Error(numeric) for weights that are not finite, Error(io) when the disk is full.
void write_store(const TensorSource& source, const QuantConfig& quant, const std::filesystem::path& folder,
                 const StoreOptions& options = {});

/// A model's config.json with the quantization_config by which transformers recognises such a folder.
std::string with_quantization_config(std::string_view config_json, const QuantConfig& quant);

/// The decoded weights of a store as a source, e.g. to merge or to inspect a quantised model.
std::unique_ptr<TensorSource> store_source(std::shared_ptr<const WeightStore> store);

}  // namespace bantam
