// SPDX-License-Identifier: Apache-2.0
// A weight store in device memory: one block, every part of every tensor at a multiple of 256 bytes.
#include "../kernels/device_buffer.h"
#include "weight_store_impl.h"

namespace bantam {

namespace {

constexpr size_t kAlign = 256;

// Called twice over the same parts in the same order: first to measure, then to place and upload.
class Placer {
 public:
  explicit Placer(DeviceBuffer* to, const Backend& backend) : to_(to), backend_(backend) {}
  template <class T>
  void put(const T*& p, size_t bytes) {
    if (!p || bytes == 0) return;
    if (to_) {
      char* at = static_cast<char*>(to_->data()) + offset_;
      backend_.upload(at, p, bytes);
      p = reinterpret_cast<const T*>(at);
    }
    offset_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }
  void put(const void*& p, size_t bytes) {
    const char* c = static_cast<const char*>(p);
    put(c, bytes);
    p = c;
  }
  size_t bytes() const { return offset_; }

 private:
  DeviceBuffer* to_;
  const Backend& backend_;
  size_t offset_ = 0;
};

void put(Placer& placer, WeightStore::Entry& e) {
  if (e.is_vector) {
    const float* p = e.vector.data();
    placer.put(p, e.vector.size_bytes());
    e.vector = {p, e.vector.size()};
    return;
  }
  WeightView& w = e.matrix;
  const auto n = static_cast<size_t>(w.rows * w.cols);
  if (w.format != WeightFormat::nf4) {
    const size_t size = w.format == WeightFormat::bf16 ? 2 : 4;
    placer.put(w.data,
               w.rows > 0 ? (static_cast<size_t>((w.rows - 1) * w.stride) + static_cast<size_t>(w.cols)) * size : 0);
    return;
  }
  const size_t blocks = (n + WeightView::kBlock - 1) / WeightView::kBlock;
  placer.put(w.data, (n + 1) / 2);
  placer.put(w.absmax, blocks * sizeof(float));
  placer.put(w.absmax_q, blocks);
  placer.put(w.nested_absmax, (blocks + WeightView::kNestedBlock - 1) / WeightView::kNestedBlock * sizeof(float));
  placer.put(w.nested_code, 256 * sizeof(float));
}

}  // namespace

size_t device_stored_bytes(const SourceTensor& t, const QuantConfig& quant) {
  WeightStore::Entry e;
  const auto somewhere = reinterpret_cast<const float*>(kAlign);  // measured, not read
  if (t.shape.size() < 2) {
    e.is_vector = true;
    e.vector = {somewhere, static_cast<size_t>(t.rows())};
  } else {
    WeightView& w = e.matrix;
    w.format = stored_format(t, quant);
    w.rows = t.rows();
    w.cols = w.stride = t.cols();
    w.data = somewhere;
    if (w.format == WeightFormat::nf4 && quant.double_quant) {
      w.absmax_q = reinterpret_cast<const uint8_t*>(somewhere);
      w.nested_absmax = w.nested_code = somewhere;
    } else if (w.format == WeightFormat::nf4) {
      w.absmax = somewhere;
    }
  }
  Placer measure(nullptr, cpu_backend());
  put(measure, e);
  return measure.bytes();
}

size_t WeightStore::device_bytes() const {
  Placer measure(nullptr, cpu_backend());
  auto entries = impl_->entries;
  for (auto& [name, e] : entries) put(measure, e);
  return measure.bytes();
}

std::shared_ptr<const WeightStore> WeightStore::on(const Backend& backend) const {
  if (backend.host_memory) return shared_from_this();
  const std::lock_guard lock(impl_->device_mutex);
  if (auto there = impl_->device_store.lock(); there && impl_->device_backend == &backend) return there;
  auto impl = std::make_unique<Impl>();
  impl->entries = impl_->entries;
  impl->mapped = false;
  impl->layers = impl_->layers;
  impl->fingerprint = impl_->fingerprint;
  impl->bytes = device_bytes();
  const auto block = std::make_shared<DeviceBuffer>(backend, impl->bytes, "the weights");
  Placer placer(block.get(), backend);
  for (auto& [name, e] : impl->entries) put(placer, e);
  impl->owners = {block};
  auto store = std::make_shared<const WeightStore>(std::move(impl));
  impl_->device_backend = &backend;
  impl_->device_store = store;
  return store;
}

}  // namespace bantam
