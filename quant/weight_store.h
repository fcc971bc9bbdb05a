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

  /// Maps a folder written by write_store(); under a second, reads headers only.
  static std::shared_ptr<const WeightStore> open(const std::filesystem::path& folder);
  /// Quantises into memory (tests, small models, no cache).
  static std::shared_ptr<const WeightStore> in_memory(const TensorSource& source, const QuantConfig& quant);

  WeightLease acquire(int layer) const;
  /// Hint that `layer` is next (madvise WILLNEED on mapped stores); returns at once.
  void prefetch(int layer) const;
  /// Bytes of all weights as stored.
  size_t bytes() const;
  /// Whether every byte is file-backed (not anonymous memory).
  bool mapped() const;

  struct Entry;
  struct Impl;

 private:
  friend class WeightLease;
  explicit WeightStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

 public:
  ~WeightStore();
};

}  // namespace bantam
