// SPDX-License-Identifier: Apache-2.0
#include "adapter_set.h"

#include <algorithm>
#include <cmath>

#include "../kernels/error.h"
#include "../kernels/hash.h"

namespace bantam {

AdapterSet::AdapterSet(const LoraConfig& config, const std::vector<Module>& modules, uint64_t seed,
                       const std::vector<Extra>& extra)
    : config_(config) {
  add_modules(modules);
  for (const auto& e : extra) add(e.name, e.rows, e.cols);
  const auto n = static_cast<size_t>(size_);
  values_.assign(n, 0);
  grads_.assign(n, 0);
  exp_avg_.assign(n, 0);
  exp_avg_sq_.assign(n, 0);
  for (const auto& a : adapters_) {
    const Parameter& p = parameters_[static_cast<size_t>(a.a)];
    const uint64_t key = mix64(seed ^ fnv1a(p.name));
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.cols));
    float* v = values_.data() + p.offset;
    for (int64_t i = 0; i < p.size(); ++i) {
      const double u = uniform53(mix64(key + static_cast<uint64_t>(i)));
      v[i] = static_cast<float>((2 * u - 1) * bound);
    }
  }
  for (const auto& e : extra) {
    const Parameter& p = parameters_[static_cast<size_t>(find_parameter(e.name))];
    if (static_cast<int64_t>(e.values.size()) != p.size())
      throw Error(ErrorCode::internal,
                  str("parameter ", e.name, ": ", e.values.size(), " start values for ", p.size(), " elements"));
    std::copy(e.values.begin(), e.values.end(), values_.begin() + p.offset);
  }
}

AdapterSet AdapterSet::shapes(const LoraConfig& config, const std::vector<Module>& modules) {
  AdapterSet a;
  a.config_ = config;
  a.add_modules(modules);
  return a;
}

void AdapterSet::add_modules(const std::vector<Module>& modules) {
  if (config_.r < 1) throw Error(ErrorCode::usage, str("lora_r: found ", config_.r, ", expected >= 1"));
  const int n = static_cast<int>(modules.size());
  for (const auto& m : modules) {
    const int i = static_cast<int>(adapters_.size());
    adapter_index_[m.path] = i;
    adapters_.push_back({m.path, i, n + i});
    add(m.path + ".lora_A.weight", config_.r, m.in);
  }
  for (const auto& m : modules) add(m.path + ".lora_B.weight", m.out, config_.r);
}

void AdapterSet::add(const std::string& name, int64_t rows, int64_t cols) {
  parameter_index_[name] = static_cast<int>(parameters_.size());
  parameters_.push_back({name, rows, cols, size_});
  size_ += rows * cols;
}

const AdapterSet::Adapter* AdapterSet::find(std::string_view module) const {
  const auto it = adapter_index_.find(module);
  return it == adapter_index_.end() ? nullptr : &adapters_[static_cast<size_t>(it->second)];
}

bool AdapterSet::stacked(std::span<const std::string> modules) const {
  const Parameter* above = nullptr;
  for (const std::string& m : modules) {
    const Adapter* a = find(m);
    if (!a) return false;
    const Parameter& p = parameters_[static_cast<size_t>(a->a)];
    if (above && (p.cols != above->cols || p.offset != above->offset + above->size())) return false;
    above = &p;
  }
  return above != nullptr;
}

int AdapterSet::find_parameter(std::string_view name) const {
  const auto it = parameter_index_.find(name);
  return it == parameter_index_.end() ? -1 : it->second;
}

void AdapterSet::move_to(const Backend& backend) {
  if (backend.host_memory || (device_ && device_->backend == &backend)) return;
  const size_t bytes = 4 * static_cast<size_t>(size_) * sizeof(float);
  device_ = std::make_shared<Device>(Device{&backend, DeviceBuffer(backend, bytes, "the adapters"), size_});
  send();
}

void AdapterSet::send() {
  if (!device_) return;
  const size_t bytes = static_cast<size_t>(size_) * sizeof(float);
  int k = 0;
  for (const auto* host : {&values_, &grads_, &exp_avg_, &exp_avg_sq_})
    device_->backend->upload(device_->at(k++), host->data(), bytes);
}

void AdapterSet::fetch() {
  if (!device_) return;
  const size_t bytes = static_cast<size_t>(size_) * sizeof(float);
  int k = 0;
  for (auto* host : {&values_, &grads_, &exp_avg_, &exp_avg_sq_})
    device_->backend->download(host->data(), device_->at(k++), bytes);
}

void AdapterSet::zero_grads() {
  if (device_)
    device_->backend->fill(device_->grads(), 0, static_cast<size_t>(size_) * sizeof(float));
  else
    std::fill(grads_.begin(), grads_.end(), 0.0f);
}

ConstTensorView AdapterSet::value(int parameter) const {
  const Parameter& p = parameters_[static_cast<size_t>(parameter)];
  const float* base = device_ ? device_->values() : values_.data();
  return {base + p.offset, DType::f32, p.rows, p.cols};
}
TensorView AdapterSet::value(int parameter) {
  const Parameter& p = parameters_[static_cast<size_t>(parameter)];
  return {op_values() + p.offset, DType::f32, p.rows, p.cols};
}
TensorView AdapterSet::grad(int parameter) {
  const Parameter& p = parameters_[static_cast<size_t>(parameter)];
  return {op_grads() + p.offset, DType::f32, p.rows, p.cols};
}

}  // namespace bantam
