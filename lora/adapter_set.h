// SPDX-License-Identifier: Apache-2.0
// All that is trained: LoRA matrices, and other parameters that a model family marks trainable. Masters, gradients and
// AdamW moments are four flat f32 buffers in one order, so that optimiser, clipping and communication see one array.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../kernels/tensor.h"
#include "lora_config.h"

namespace bantam {

/// One trained matrix [rows, cols], a slice of the flat buffers.
struct Parameter {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.lora_A.weight"
  int64_t rows = 0, cols = 0;
  int64_t offset = 0;  ///< first element in the flat buffers
  int64_t size() const { return rows * cols; }
};

class AdapterSet {
 public:
  /// LoRA of one linear module, as indices into parameters().
  struct Adapter {
    std::string module;  ///< "model.layers.0.self_attn.q_proj"
    int a = -1;          ///< lora_A [r, in]
    int b = -1;          ///< lora_B [out, r]
  };
  /// A linear that gets an adapter.
  struct Module {
    std::string path;
    int64_t in = 0, out = 0;
  };
  /// A trained matrix that is not LoRA, with its start value.
  struct Extra {
    std::string name;
    int64_t rows = 0, cols = 0;
    std::vector<float> values;
  };

  /// lora_A uniform in +-1/sqrt(in) (PEFT's kaiming_uniform with a = sqrt(5)), lora_B zero. Each matrix is a function
  /// of the seed and its own name only.
  AdapterSet(const LoraConfig& config, const std::vector<Module>& modules, uint64_t seed,
             const std::vector<Extra>& extra = {});

  /// Names and shapes without the buffers: for plans. values(), grads() and moments are empty.
  static AdapterSet shapes(const LoraConfig& config, const std::vector<Module>& modules);

  const LoraConfig& config() const { return config_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Adapter>& adapters() const { return adapters_; }
  /// Null when the module has no adapter.
  const Adapter* find(std::string_view module) const;
  /// Index into parameters(); -1: none.
  int find_parameter(std::string_view name) const;

  int64_t size() const { return size_; }  ///< elements of each flat buffer
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> grads() { return grads_; }
  std::span<const float> grads() const { return grads_; }
  std::span<float> exp_avg() { return exp_avg_; }
  std::span<const float> exp_avg() const { return exp_avg_; }
  std::span<float> exp_avg_sq() { return exp_avg_sq_; }
  std::span<const float> exp_avg_sq() const { return exp_avg_sq_; }
  void zero_grads();

  ConstTensorView value(int parameter) const;
  TensorView value(int parameter);
  TensorView grad(int parameter);

 private:
  AdapterSet() = default;
  void add(const std::string& name, int64_t rows, int64_t cols);
  void add_modules(const std::vector<Module>& modules);

  LoraConfig config_;
  std::vector<Parameter> parameters_;
  std::vector<Adapter> adapters_;
  std::map<std::string, int, std::less<>> adapter_index_, parameter_index_;
  int64_t size_ = 0;
  std::vector<float> values_, grads_, exp_avg_, exp_avg_sq_;
};

}  // namespace bantam
