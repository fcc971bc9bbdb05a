// SPDX-License-Identifier: Apache-2.0
// All that is trained: LoRA matrices, and other parameters that a model family marks trainable. Masters, gradients and
// AdamW moments are four flat f32 buffers in one order, so that optimiser, clipping and communication see one array:
// all lora_A, then all lora_B, then the others; so the lora_A of modules that read one input are one matrix
// (stacked()).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../kernels/device_buffer.h"
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
  /// Whether the lora_A of these modules lie one below the other, as one matrix [n r, in]: modules that follow each
  /// other and have inputs of one width.
  bool stacked(std::span<const std::string> modules) const;
  /// Index into parameters(); -1: none.
  int find_parameter(std::string_view name) const;

  /// Moves the buffers that ops work on into a backend's memory (nothing to do where that is host memory). From then on
  /// value() and grad() are device views, and the spans below are the host's copy as of the last fetch() or send().
  void move_to(const Backend& backend);
  void fetch();  ///< device to host: values, gradients, moments
  void send();   ///< host to device
  /// The flat buffers that ops work on.
  float* op_values() { return device_ ? device_->values() : values_.data(); }
  float* op_grads() { return device_ ? device_->grads() : grads_.data(); }
  float* op_exp_avg() { return device_ ? device_->exp_avg() : exp_avg_.data(); }
  float* op_exp_avg_sq() { return device_ ? device_->exp_avg_sq() : exp_avg_sq_.data(); }

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
  struct Device {
    const Backend* backend;
    DeviceBuffer memory;  ///< the four buffers, one after the other
    int64_t size;
    float* at(int k) const { return static_cast<float*>(memory.data()) + k * size; }
    float* values() const { return at(0); }
    float* grads() const { return at(1); }
    float* exp_avg() const { return at(2); }
    float* exp_avg_sq() const { return at(3); }
  };
  int64_t size_ = 0;
  std::vector<float> values_, grads_, exp_avg_, exp_avg_sq_;
  std::shared_ptr<Device> device_;  ///< null: the host's buffers are the ops'
};

}  // namespace bantam
