// SPDX-License-Identifier: Apache-2.0
#include "nf4.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>

#include "../kernels/error.h"
#include "../kernels/nf4_codebook.h"
#include "nf4_impl.h"

namespace bantam {

namespace {

constexpr int64_t kBlock = WeightView::kBlock, kNested = WeightView::kNestedBlock;

// A 16-bit table over [-1, 1], as bitsandbytes quantises on the CPU: a value goes to the code nearest to the middle of
// its cell. (So the codes nearest to zero are never used.)
const std::vector<uint8_t>& nested_table() {
  static const std::vector<uint8_t> table = [] {
    const auto& map = dynamic_map();
    std::vector<uint8_t> t(65536);
    for (int i = 0; i < 65536; ++i) {
      const float v = static_cast<float>(i) / 65535.0f * 2.0f - 1.0f;
      const auto right = std::clamp<int64_t>(std::lower_bound(map.begin(), map.end(), v) - map.begin(), 1, 255);
      const float to_left = std::fabs(v - map[right - 1]), to_right = std::fabs(map[right] - v);
      t[i] = static_cast<uint8_t>(to_right < to_left ? right : right - 1);
    }
    return t;
  }();
  return table;
}

// A quick look at each piece first.
template <class T, class Bad>
detail::NonFinite find_where(const T* x, int64_t n, int64_t base, Bad is_bad) {
  detail::NonFinite bad;
  for (int64_t b = 0; b < n; b += 4096) {
    const int64_t m = std::min<int64_t>(4096, n - b);
    int any = 0;
    for (int64_t i = 0; i < m; ++i) any |= is_bad(x[b + i]);
    if (!any) continue;
    for (int64_t i = 0; i < m; ++i)
      if (is_bad(x[b + i]) && bad.count++ == 0) bad.first = base + b + i;
  }
  return bad;
}

uint8_t* codes_of(Nf4Matrix& m) {
  return static_cast<uint8_t*>(m.codes.view().data);
}

}  // namespace

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = [] {
    std::array<float, 256> m{};
    size_t used = 0;
    for (int e = 0; e < 7; ++e) {
      const int cells = 1 << e;
      // As the reference computes in f32: end points of a linear range, counted from the nearer end with one rounding
      // (product and sum in double are exact enough for that), their means, the power of ten.
      const double low = static_cast<double>(0.1f),
                   step = static_cast<double>((1.0f - 0.1f) / static_cast<float>(cells));
      const float power = static_cast<float>(std::pow(10.0, e - 6));
      const auto bound = [&](int i) {
        return static_cast<float>(i < (cells + 1) / 2 ? low + step * i : 1.0 - step * (cells - i));
      };
      for (int i = 0; i < cells; ++i) {
        const float mean = (bound(i) + bound(i + 1)) / 2.0f;
        m[used++] = power * mean;
        m[used++] = -(power * mean);
      }
    }
    m[used++] = 0.0f;
    m[used++] = 1.0f;
    std::sort(m.begin(), m.end());
    return m;
  }();
  return map;
}

float fixed_order_mean(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v);
  return values.empty() ? 0.0f : static_cast<float>(sum / static_cast<double>(values.size()));
}

void nested_quantise(std::span<const float> values, float offset, uint8_t* codes, float* absmax) {
  const auto& table = nested_table();
  const int64_t n = static_cast<int64_t>(values.size());
  float shifted[kNested];
  for (int64_t b = 0; b < n; b += kNested) {
    const int64_t m = std::min(kNested, n - b);
    float scale = 0;
    for (int64_t i = 0; i < m; ++i) {
      shifted[i] = values[static_cast<size_t>(b + i)] - offset;
      const float size = std::fabs(shifted[i]);
      scale = size > scale ? size : scale;  // NaN is passed over
    }
    absmax[b / kNested] = scale;
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < m; ++i) {
      if (scale == 0) {
        codes[b + i] = 0;
        continue;
      }
      float v = shifted[i] * inverse;
      v = v >= -1.0f ? std::min(v, 1.0f)
                     : -1.0f;  // NaN (scales that overflow) becomes -1 rather than an index out of range
      codes[b + i] = table[static_cast<size_t>((v + 1.0f) * 0.5f * 65535.0f + 0.5f)];
    }
  }
}

WeightView Nf4Matrix::view() const {
  WeightView w;
  w.format = WeightFormat::nf4;
  w.rows = rows;
  w.cols = w.stride = cols;
  w.data = codes.view().data;
  if (absmax_q.empty()) {
    w.absmax = absmax.data();
  } else {
    w.absmax_q = absmax_q.data();
    w.nested_absmax = nested_absmax.data();
    w.nested_code = dynamic_map().data();
    w.nested_offset = nested_offset;
  }
  return w;
}

size_t Nf4Matrix::bytes() const {
  return codes.bytes() + absmax.size() * 4 + absmax_q.size() + nested_absmax.size() * 4;
}

namespace detail {

void NonFinite::merge(const NonFinite& other) {
  if (other.count == 0) return;
  first = count == 0 ? other.first : std::min(first, other.first);
  count += other.count;
}

NonFinite find_non_finite(const float* x, int64_t n, int64_t base) {
  return find_where(x, n, base, [](float v) { return !(v - v == 0.0f); });  // finite - finite is 0, else NaN
}

NonFinite find_non_finite(const bf16* x, int64_t n, int64_t base) {
  return find_where(x, n, base, [](bf16 v) { return (v.bits & 0x7f80) == 0x7f80; });
}

void check_finite(const NonFinite& bad, const std::string& name, int64_t cols) {
  if (bad.count == 0) return;
  throw Error(ErrorCode::numeric,
              str("tensor '", name, "': ", bad.count, " values are NaN or infinite, the first at index ", bad.first,
                  " (row ", bad.first / cols, ", column ", bad.first % cols, "), expected finite weights"),
              "the model file is damaged or its training diverged; use another one");
}

Nf4Matrix allocate_nf4(int64_t rows, int64_t cols) {
  Nf4Matrix m;
  m.rows = rows;
  m.cols = cols;
  const int64_t n = rows * cols;
  m.codes = Tensor(DType::u8, 1, (n + 1) / 2);
  m.absmax.resize(static_cast<size_t>((n + kBlock - 1) / kBlock));
  return m;
}

void nest(Nf4Matrix& m) {
  const size_t n = m.absmax.size();
  m.absmax_q.resize(n);
  m.nested_absmax.resize((n + kNested - 1) / kNested);
  m.nested_offset = fixed_order_mean(m.absmax);
  nested_quantise(m.absmax, m.nested_offset, m.absmax_q.data(), m.nested_absmax.data());
  std::vector<float>().swap(m.absmax);
}

void require_finite(const SourceTensor& t, const float* x, int64_t n, int64_t base) {
  check_finite(find_non_finite(x, n, base), t.name, std::max<int64_t>(t.cols(), 1));
}

int64_t slab_rows(int64_t rows, int64_t cols, int64_t elements) {
  const int64_t unit = kBlock / std::gcd(cols, kBlock);  // fewest rows that end at a block's end
  const int64_t units = std::max<int64_t>(1, elements / std::max<int64_t>(1, unit * cols));
  return std::clamp<int64_t>(unit * units, 1, std::max<int64_t>(rows, 1));
}

void for_slabs(int64_t rows, int64_t cols, ThreadPool& pool, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const int64_t step = slab_rows(rows, cols);
  std::atomic<int64_t> next{0};
  pool.run([&](int) {
    for (int64_t s = next.fetch_add(1); s * step < rows; s = next.fetch_add(1))
      f(s, s * step, std::min(step, rows - s * step));
  });
}

}  // namespace detail

Nf4Matrix nf4_quantise(const TensorSource& source, size_t i, bool double_quant, ThreadPool& pool) {
  const SourceTensor& t = source.tensor_with_rows(i, 0, 0);
  const int64_t rows = t.rows(), cols = t.cols();
  Nf4Matrix m = detail::allocate_nf4(rows, cols);
  detail::NonFinite bad;
  std::mutex mutex;
  detail::for_slabs(rows, cols, pool, [&](int64_t, int64_t r0, int64_t n) {
    std::vector<float> slab(static_cast<size_t>(n * cols));
    source.read_rows(i, r0, n, slab.data());
    const detail::NonFinite here = detail::find_non_finite(slab.data(), n * cols, r0 * cols);
    if (here.count > 0) {
      const std::lock_guard lock(mutex);
      bad.merge(here);
      return;
    }
    nf4_quantise(slab.data(), n * cols, codes_of(m) + r0 * cols / 2, m.absmax.data() + r0 * cols / kBlock);
  });
  detail::check_finite(bad, t.name, std::max<int64_t>(cols, 1));
  if (double_quant) detail::nest(m);
  return m;
}

Nf4Matrix nf4_quantise(const float* x, int64_t rows, int64_t cols, bool double_quant) {
  Nf4Matrix m = detail::allocate_nf4(rows, cols);
  detail::check_finite(detail::find_non_finite(x, rows * cols, 0), "in memory", std::max<int64_t>(cols, 1));
  nf4_quantise(x, rows * cols, codes_of(m), m.absmax.data());
  if (double_quant) detail::nest(m);
  return m;
}

void decode_weight(const WeightView& w, int64_t first, int64_t n, float* out) {
  if (w.format != WeightFormat::nf4) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = (first + i) / w.cols * w.stride + (first + i) % w.cols;
      out[i] = w.format == WeightFormat::bf16 ? to_f32(static_cast<const bf16*>(w.data)[at])
                                              : static_cast<const float*>(w.data)[at];
    }
    return;
  }
  const auto* codes = static_cast<const uint8_t*>(w.data);
  for (int64_t i = first; i < first + n; ++i) {
    const int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    out[i - first] = kNf4Code[code] * w.block_absmax(i / kBlock);
  }
}

WeightError weight_error(const TensorSource& source, size_t i, const WeightView& w) {
  const SourceTensor& t = source.tensor_with_rows(i, 0, 0);
  const int64_t rows = t.rows(), cols = t.cols(), step = detail::slab_rows(rows, cols);
  WeightError e;
  double sum = 0, sum_source = 0;
  std::vector<float> a, b;
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r) * cols;
    a.resize(static_cast<size_t>(n));
    b.resize(static_cast<size_t>(n));
    source.read_rows(i, r, n / cols, a.data());
    decode_weight(w, r * cols, n, b.data());
    for (int64_t k = 0; k < n; ++k) {
      const double x = a[static_cast<size_t>(k)], d = x - static_cast<double>(b[static_cast<size_t>(k)]);
      sum += d * d;
      sum_source += x * x;
      e.max = std::max(e.max, std::fabs(d));
    }
  }
  const double count = static_cast<double>(std::max<int64_t>(1, rows * cols));
  e.rms = std::sqrt(sum / count);
  e.source_rms = std::sqrt(sum_source / count);
  return e;
}

}  // namespace bantam
