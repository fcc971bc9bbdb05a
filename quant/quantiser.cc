// SPDX-License-Identifier: Apache-2.0
#include "quantiser.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "../kernels/device_buffer.h"
#include "nf4_impl.h"
#include "weight_store.h"

namespace bantam {

namespace {

constexpr int64_t kBlock = WeightView::kBlock;
constexpr int64_t kPartElements = 1 << 16;  // of a slab, that one thread decodes at a time
constexpr size_t kAlign = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// bf16 values travel as they are; the kernel takes both.
DType slab_type(const SourceTensor& t) {
  return t.natural == DType::bf16 ? DType::bf16 : DType::f32;
}

// A slab in memory: values, codes, scales; on the host and on the device alike.
struct SlabLayout {
  size_t codes, absmax, bytes;  // values begin at 0
  SlabLayout(DType type, int64_t n)
      : codes(aligned(static_cast<size_t>(n) * size_of(type))),
        absmax(codes + aligned(static_cast<size_t>((n + 1) / 2))),
        bytes(absmax + aligned(static_cast<size_t>((n + kBlock - 1) / kBlock) * sizeof(float))) {}
};

// Of one slab.
size_t largest_slab(const TensorSource& source, int64_t slab_elements) {
  size_t most = 0;
  for (const SourceTensor& t : source.tensors()) {
    if (!is_quantised_tensor(t)) continue;
    const int64_t rows = detail::slab_rows(t.rows(), t.cols(), slab_elements);
    most = std::max(most, SlabLayout(slab_type(t), rows * t.cols()).bytes);
  }
  return most;
}

}  // namespace

size_t quantise_device_bytes(const TensorSource& source, int64_t slab_elements) {
  return 2 * largest_slab(source, slab_elements);
}

// Two slabs on the device and two in pinned memory, used in turn.
class Quantiser::Slabs {
 public:
  Slabs(const TensorSource& source, Context& ctx, int64_t slab_elements)
      : source_(source),
        ctx_(ctx),
        backend_(ctx.backend()),
        elements_(slab_elements),
        slab_bytes_(largest_slab(source, slab_elements)) {
    if (slab_bytes_ == 0) return;
    constexpr const char* kHint = "free some, or quantise on the CPU (device: cpu), to the same bytes";
    try {
      device_ = DeviceBuffer(backend_, 2 * slab_bytes_, "slabs of weights to quantise");
      pinned_ = PinnedBuffer(backend_, 2 * slab_bytes_, "slabs of weights to quantise");
    } catch (const Error& e) {
      throw Error(e.code(), e.what(), e.code() == ErrorCode::does_not_fit ? kHint : e.hint());
    }
  }
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;
  size_t bytes() const { return 2 * slab_bytes_; }

  // Codes and plain scales of tensor i into m.
  void quantise(size_t i, Nf4Matrix& m, ThreadPool& pool) {
    const SourceTensor& t = source_.tensors()[i];
    if (t.rows() * t.cols() == 0) return;
    const int64_t rows = t.rows(), step = detail::slab_rows(rows, t.cols(), elements_),
                  slabs = (rows + step - 1) / step;
    const auto part = [&](int64_t s) { return Part{s * step, std::min(step, rows - s * step), t.cols()}; };
    detail::NonFinite bad;
    for (int64_t s = 0; s < slabs; ++s) {
      if (s >= 2 && bad.count == 0) on_device(t, [&] { take(t, m, part(s - 2), s % 2); });
      bad.merge(decode(i, t, part(s), host(s % 2), pool));
      if (bad.count == 0) on_device(t, [&] { send(t, part(s), s % 2); });
    }
    detail::check_finite(bad, t.name, std::max<int64_t>(t.cols(), 1));
    for (int64_t s = std::max<int64_t>(0, slabs - 2); s < slabs; ++s) on_device(t, [&] { take(t, m, part(s), s % 2); });
  }

 private:
  struct Part {
    int64_t row, rows, cols;
    int64_t first() const { return row * cols; }
    int64_t size() const { return rows * cols; }
  };

  char* host(int64_t slot) const {
    return static_cast<char*>(pinned_.data()) + static_cast<size_t>(slot) * slab_bytes_;
  }

  // The host's share: rows to `to`, on all threads.
  detail::NonFinite decode(size_t i, const SourceTensor& t, const Part& p, char* to, ThreadPool& pool) const {
    const int64_t step = std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, p.cols));
    detail::NonFinite bad;
    std::mutex mutex;
    std::atomic<int64_t> next{0};
    pool.run([&](int) {
      for (int64_t r = next.fetch_add(step); r < p.rows; r = next.fetch_add(step)) {
        const int64_t n = std::min(step, p.rows - r);
        with_float_type(slab_type(t), [&]<class T>() {
          T* const out = reinterpret_cast<T*>(to) + r * p.cols;
          if constexpr (std::is_same_v<T, bf16>)
            source_.read_rows_bf16(i, p.row + r, n, out);
          else
            source_.read_rows(i, p.row + r, n, out);
          const auto here = detail::find_non_finite(out, n * p.cols, p.first() + r * p.cols);
          if (here.count == 0) return;
          const std::lock_guard lock(mutex);
          bad.merge(here);
        });
      }
    });
    return bad;
  }

  void send(const SourceTensor& t, const Part& p, int64_t slot) {
    const SlabLayout at(slab_type(t), p.size());
    char* const here = host(slot);
    char* const there = static_cast<char*>(device_.data()) + static_cast<size_t>(slot) * slab_bytes_;
    backend_.upload_pinned(there, here, static_cast<size_t>(p.size()) * size_of(slab_type(t)));
    quantize_nf4(ctx_, {.x = {there, slab_type(t), p.rows, p.cols},
                        .codes = reinterpret_cast<uint8_t*>(there + at.codes),
                        .absmax = reinterpret_cast<float*>(there + at.absmax)});
    backend_.download_pinned(here + at.codes, there + at.codes, at.bytes - at.codes);
    backend_.mark(kMarkQuantise + static_cast<int>(slot));
  }

  void take(const SourceTensor& t, Nf4Matrix& m, const Part& p, int64_t slot) const {
    const SlabLayout at(slab_type(t), p.size());
    const char* const here = host(slot);
    backend_.wait_for(kMarkQuantise + static_cast<int>(slot));
    std::memcpy(static_cast<uint8_t*>(m.codes.view().data) + p.first() / 2, here + at.codes,
                static_cast<size_t>((p.size() + 1) / 2));
    std::memcpy(m.absmax.data() + p.first() / kBlock, here + at.absmax,
                static_cast<size_t>((p.size() + kBlock - 1) / kBlock) * sizeof(float));
  }

  template <class F>
  void on_device(const SourceTensor& t, F&& f) const {
    try {
      f();
    } catch (const Error& e) {
      throw Error(e.code(), str("quantising '", t.name, "' on ", ctx_.device_name(), ": ", e.what()), e.hint());
    }
  }

  const TensorSource& source_;
  Context& ctx_;
  const Backend& backend_;
  int64_t elements_;
  size_t slab_bytes_;
  DeviceBuffer device_;
  PinnedBuffer pinned_;  // waits for copies that a failure left behind
};

Quantiser::Quantiser(const TensorSource& source, int threads, Context* device, int64_t slab_elements)
    : source_(source), pool_(threads) {
  if (device && !device->backend().host_memory) slabs_ = std::make_unique<Slabs>(source, *device, slab_elements);
}

Quantiser::~Quantiser() = default;

size_t Quantiser::device_bytes() const {
  return slabs_ ? slabs_->bytes() : 0;
}

Nf4Matrix Quantiser::quantise(size_t i, bool double_quant) {
  if (!slabs_) return nf4_quantise(source_, i, double_quant, pool_);
  const SourceTensor& t = source_.tensor_with_rows(i, 0, 0);
  Nf4Matrix m = detail::allocate_nf4(t.rows(), t.cols());
  slabs_->quantise(i, m, pool_);
  if (double_quant) detail::nest(m);
  return m;
}

}  // namespace bantam
