// SPDX-License-Identifier: Apache-2.0
#include "weight_store.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include "../kernels/error.h"
#include "nf4.h"
#include "quantiser.h"
#include "weight_store_impl.h"

namespace bantam {

namespace {

constexpr std::string_view kLayers = "model.layers.";

[[noreturn]] void no_tensor(const std::string& name, const char* kind) {
  throw Error(ErrorCode::model, str("the model has no ", kind, " '", name, "'"),
              "the weights do not fit the model's configuration");
}

}  // namespace

int layer_of(std::string_view name) {
  if (!name.starts_with(kLayers)) return WeightStore::kTop;
  const char *begin = name.data() + kLayers.size(), *end = name.data() + name.size();
  int layer = 0;
  const auto [p, ec] = std::from_chars(begin, end, layer);
  if (ec != std::errc() || p == end || *p != '.' || *begin == '-' || (*begin == '0' && p != begin + 1) ||
      layer > 1000000)
    return WeightStore::kTop;
  return layer;
}

bool is_quantised_tensor(const SourceTensor& t) {
  return t.shape.size() == 2 && layer_of(t.name) != WeightStore::kTop && t.name.ends_with("_proj.weight");
}

WeightFormat stored_format(const SourceTensor& t, const QuantConfig& quant) {
  if (quant.type == QuantType::nf4 && is_quantised_tensor(t)) return WeightFormat::nf4;
  return t.natural == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32;
}

size_t stored_bytes(const SourceTensor& t, const QuantConfig& quant) {
  const auto n = static_cast<size_t>(t.rows()) * static_cast<size_t>(t.cols());
  const WeightFormat format = stored_format(t, quant);
  if (format != WeightFormat::nf4) return n * (format == WeightFormat::bf16 ? 2 : 4);
  constexpr size_t kBlock = WeightView::kBlock, kNested = WeightView::kNestedBlock;
  const size_t blocks = (n + kBlock - 1) / kBlock;
  const size_t scales =
      quant.double_quant ? blocks + (blocks + kNested - 1) / kNested * sizeof(float) : blocks * sizeof(float);
  return (n + 1) / 2 + scales;
}

const WeightView& WeightLease::matrix(std::string_view name) const {
  const std::string full = prefix_ + std::string(name);
  const WeightView* w = store_ ? store_->find_matrix(full) : nullptr;
  if (!w) no_tensor(full, "matrix");
  return *w;
}

std::span<const float> WeightLease::vector(std::string_view name) const {
  const std::string full = prefix_ + std::string(name);
  const auto v = store_ ? store_->find_vector(full) : std::span<const float>();
  if (v.empty()) no_tensor(full, "vector");
  return v;
}

bool WeightLease::has(std::string_view name) const {
  return store_ && store_->impl_->entries.contains(prefix_ + std::string(name));
}

std::span<const float> WeightStore::Impl::own(std::vector<float> values) {
  const auto held = std::make_shared<const std::vector<float>>(std::move(values));
  owners.push_back(held);
  return *held;
}

void WeightStore::Impl::add(const std::string& name, Entry entry) {
  layers = std::max(layers, layer_of(name) + 1);
  entries.insert_or_assign(name, std::move(entry));
}

WeightStore::WeightStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightStore::~WeightStore() = default;

size_t WeightStore::bytes() const {
  return impl_->bytes;
}
bool WeightStore::mapped() const {
  return impl_->mapped;
}
int WeightStore::layers() const {
  return impl_->layers;
}
const std::string& WeightStore::fingerprint() const {
  return impl_->fingerprint;
}

std::vector<std::string> WeightStore::names() const {
  std::vector<std::string> out;
  for (const auto& [name, e] : impl_->entries) out.push_back(name);
  return out;
}

WeightFormats WeightStore::formats() const {
  WeightFormats out;
  for (const auto& [name, e] : impl_->entries)
    if (!e.is_vector) out[name] = e.matrix.format;
  return out;
}

const WeightView* WeightStore::find_matrix(std::string_view name) const {
  const auto it = impl_->entries.find(name);
  return it == impl_->entries.end() || it->second.is_vector ? nullptr : &it->second.matrix;
}

std::span<const float> WeightStore::find_vector(std::string_view name) const {
  const auto it = impl_->entries.find(name);
  return it == impl_->entries.end() ? std::span<const float>() : it->second.vector;
}

WeightLease WeightStore::acquire(int layer) const {
  if (layer != kTop && (layer < 0 || layer >= impl_->layers))
    throw Error(ErrorCode::model, str("the model has no layer ", layer, ", it has ", impl_->layers));
  WeightLease lease;
  lease.store_ = shared_from_this();
  if (layer != kTop) lease.prefix_ = str(kLayers, layer, ".");
  return lease;
}

void WeightStore::prefetch(int layer) const {
  const auto it = impl_->ranges.find(layer);
  if (it == impl_->ranges.end()) return;
  for (const auto& r : it->second) r.file->will_need(r.offset, r.bytes);
}

std::shared_ptr<const WeightStore> WeightStore::in_memory(const TensorSource& source, const QuantConfig& quant,
                                                          Context* device) {
  auto impl = std::make_unique<Impl>();
  impl->mapped = false;
  impl->fingerprint = source.fingerprint();
  Quantiser quantiser(source, detail::thread_count(0), quant.type == QuantType::nf4 ? device : nullptr);
  ThreadPool& pool = quantiser.pool();
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const SourceTensor& t = source.tensors()[i];
    Entry e;
    const int64_t rows = t.rows(), cols = t.cols();
    if (t.shape.size() < 2) {
      std::vector<float> values(static_cast<size_t>(rows * cols));
      source.read_rows(i, 0, rows, values.data());
      detail::require_finite(t, values.data(), rows * cols, 0);
      e.is_vector = true;
      e.vector = impl->own(std::move(values));
      impl->bytes += e.vector.size_bytes();
    } else if (quant.type == QuantType::nf4 && is_quantised_tensor(t)) {
      const auto m = std::make_shared<const Nf4Matrix>(quantiser.quantise(i, quant.double_quant));
      impl->owners.push_back(m);
      e.matrix = m->view();
      impl->bytes += m->bytes();
    } else {
      const auto m = std::make_shared<Tensor>(t.natural == DType::bf16 ? DType::bf16 : DType::f32, rows, cols);
      detail::for_slabs(rows, cols, pool, [&](int64_t, int64_t r0, int64_t n) {
        std::vector<float> slab(static_cast<size_t>(n * cols));
        source.read_rows(i, r0, n, slab.data());
        detail::require_finite(t, slab.data(), n * cols, r0 * cols);
        with_float_type(m->dtype(), [&]<class T>() {
          std::transform(slab.begin(), slab.end(), m->data<T>() + r0 * cols, [](float v) { return from_f32<T>(v); });
        });
      });
      impl->owners.push_back(m);
      e.matrix = WeightView(ConstTensorView(std::as_const(*m)));
      impl->bytes += m->bytes();
    }
    impl->add(t.name, std::move(e));
  }
  return std::make_shared<const WeightStore>(std::move(impl));
}

namespace detail {

int thread_count(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace detail

namespace {

class StoreSource : public TensorSource {
 public:
  StoreSource(std::shared_ptr<const WeightStore> store, std::vector<SourceTensor> list)
      : store_(std::move(store)), list_(std::move(list)) {}
  const std::vector<SourceTensor>& tensors() const override { return list_; }
  std::string fingerprint() const override { return store_->fingerprint(); }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    const auto& t = tensor_with_rows(i, r0, n);
    if (const WeightView* w = store_->find_matrix(t.name)) {
      decode_weight(*w, r0 * t.cols(), n * t.cols(), out);
    } else {
      const auto v = store_->find_vector(t.name).subspan(static_cast<size_t>(r0), static_cast<size_t>(n));
      std::copy(v.begin(), v.end(), out);
    }
  }

 private:
  std::shared_ptr<const WeightStore> store_;
  std::vector<SourceTensor> list_;
};

}  // namespace

std::unique_ptr<TensorSource> store_source(std::shared_ptr<const WeightStore> store) {
  std::vector<SourceTensor> list;
  for (const auto& name : store->names()) {
    const WeightView* w = store->find_matrix(name);
    SourceTensor t;
    t.name = name;
    if (w) {
      t.shape = {w->rows, w->cols};
      t.stored_as = w->format == WeightFormat::nf4 ? "NF4" : w->format == WeightFormat::bf16 ? "BF16" : "F32";
      t.natural = w->format == WeightFormat::bf16 ? DType::bf16 : DType::f32;
    } else {
      t.shape = {static_cast<int64_t>(store->find_vector(name).size())};
      t.stored_as = "F32";
    }
    t.file = "weight store";
    list.push_back(std::move(t));
  }
  return std::make_unique<StoreSource>(std::move(store), std::move(list));
}

}  // namespace bantam
