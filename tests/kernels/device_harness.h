// SPDX-License-Identifier: Apache-2.0
// Op tests that run on any backend: matrices that live on the device of a Context, filled from and read back as host
// values, and comparison with a double reference.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/backend.h"
#include "kernels/context.h"
#include "kernels/dtype.h"
#include "kernels/nf4_codebook.h"
#include "kernels/tensor.h"
#include "kernels/weight_view.h"

namespace bantam::test {

/// Reproducible values in [-scale, scale].
inline std::vector<float> random_values(int64_t n, unsigned seed, float scale = 1.0f) {
  std::mt19937 bits(seed);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = scale * (static_cast<float>(bits() >> 8) / 8388608.0f - 1.0f);
  return v;
}
/// The values as a matrix of type t holds them.
inline std::vector<float> rounded(std::vector<float> v, DType t) {
  if (t == DType::bf16)
    for (float& x : v) x = to_f32(to_bf16(x));
  return v;
}

/// The backend beside the CPU's that tests run on: $BANTAM_TEST_BACKEND, a path or a name; else the emulated one
/// (BANTAM_CUDA_ON_CPU is its path) where this build has it; else empty.
inline std::string device_backend() {
  if (const char* given = std::getenv("BANTAM_TEST_BACKEND")) return given;
#ifdef BANTAM_CUDA_ON_CPU
  return BANTAM_CUDA_ON_CPU;
#else
  return "";
#endif
}

/// Runs body(ctx) once per backend.
template <class F>
void on_each_backend(F&& body) {
  SUBCASE("cpu") {
    Context ctx({.num_threads = 2});
    body(ctx);
  }
  SUBCASE("device") {
    if (device_backend().empty()) {
      MESSAGE("skipped: this build has no CUDA toolkit headers");
      return;
    }
    Context ctx({.num_threads = 1, .backend = device_backend()});
    CHECK_FALSE(ctx.backend().host_memory);
    body(ctx);
  }
}

/// Device memory with the lifetime of this object; filled with 0xFF (NaN) when nothing is uploaded.
class DeviceBytes {
 public:
  DeviceBytes(Context& ctx, size_t bytes, const void* host = nullptr)
      : backend_(ctx.backend()), bytes_(bytes), p_(backend_.allocate(bytes)) {
    REQUIRE(p_ != nullptr);
    const std::vector<char> poison(host ? 0 : bytes, '\xff');
    if (bytes > 0) backend_.upload(p_, host ? host : poison.data(), bytes);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { backend_.release(p_); }
  void* get() const { return p_; }
  void download(void* host) const { backend_.download(host, p_, bytes_); }

 private:
  const Backend& backend_;
  size_t bytes_;
  void* p_;
};

/// A vector of T on the device.
template <class T>
class DeviceVector {
 public:
  DeviceVector(Context& ctx, const std::vector<T>& v) : size_(v.size()), bytes_(ctx, v.size() * sizeof(T), v.data()) {}
  DeviceVector(Context& ctx, int64_t n) : size_(static_cast<size_t>(n)), bytes_(ctx, size_ * sizeof(T)) {}
  T* get() const { return static_cast<T*>(bytes_.get()); }
  std::vector<T> host() const {
    std::vector<T> v(size_);
    if (size_ > 0) bytes_.download(v.data());
    return v;
  }

 private:
  size_t size_;
  DeviceBytes bytes_;
};

/// A [rows, cols] matrix of f32 or bf16 on the device, within rows of `stride` elements whose rest is NaN.
class DeviceMatrix {
 public:
  DeviceMatrix(Context& ctx, DType t, int64_t rows, int64_t cols, int64_t stride = -1, int64_t offset = 0)
      : dtype_(t),
        rows_(rows),
        cols_(cols),
        stride_(stride < 0 ? cols : stride),
        offset_(offset),
        bytes_(ctx, size()) {}
  DeviceMatrix(Context& ctx, DType t, int64_t rows, int64_t cols, const std::vector<float>& values, int64_t stride = -1,
               int64_t offset = 0)
      : dtype_(t),
        rows_(rows),
        cols_(cols),
        stride_(stride < 0 ? cols : stride),
        offset_(offset),
        bytes_(ctx, size(), stored(values).data()) {}
  TensorView view() const {
    return {static_cast<char*>(bytes_.get()) + static_cast<size_t>(offset_) * size_of(dtype_), dtype_, rows_, cols_,
            stride_};
  }
  operator TensorView() const { return view(); }
  operator ConstTensorView() const { return view(); }
  operator WeightView() const { return ConstTensorView(view()); }
  /// The matrix, dense. Fails when something between the rows was written.
  std::vector<float> host() const {
    std::vector<char> raw(size());
    bytes_.download(raw.data());
    std::vector<float> v;
    const size_t width = size_of(dtype_);
    for (size_t i = 0; i < raw.size() / width; ++i) {
      const auto at = static_cast<int64_t>(i) - offset_;
      if (at >= 0 && at % stride_ < cols_ && at / stride_ < rows_)
        v.push_back(element(raw.data() + i * width));
      else
        CHECK_MESSAGE(std::string(raw.data() + i * width, width) == std::string(width, '\xff'), "written at ", at);
    }
    return v;
  }

 private:
  size_t size() const { return static_cast<size_t>(rows_ * stride_ + offset_) * size_of(dtype_); }
  float element(const char* p) const {
    if (dtype_ == DType::f32) {
      float v;
      std::memcpy(&v, p, sizeof v);
      return v;
    }
    bf16 v;
    std::memcpy(&v, p, sizeof v);
    return to_f32(v);
  }
  std::vector<char> stored(const std::vector<float>& values) const {
    std::vector<char> raw(size(), '\xff');
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      char* to = raw.data() + static_cast<size_t>(offset_ + i / cols_ * stride_ + i % cols_) * size_of(dtype_);
      const float v = values[static_cast<size_t>(i)];
      const bf16 b = to_bf16(v);
      if (dtype_ == DType::f32)
        std::memcpy(to, &v, sizeof v);
      else
        std::memcpy(to, &b, sizeof b);
    }
    return raw;
  }

  DType dtype_;
  int64_t rows_, cols_, stride_, offset_;
  DeviceBytes bytes_;
};

/// Random NF4 codes and scales, plain or nested, with their values by the definition in weight_view.h.
struct Nf4Matrix {
  int64_t rows, cols;
  std::vector<uint8_t> codes, absmax_q;
  std::vector<float> absmax, nested_absmax, nested_code;
  float nested_offset = 0.0f;
  std::vector<float> values;

  Nf4Matrix(int64_t r, int64_t c, bool nested, unsigned seed)
      : rows(r), cols(c), codes(static_cast<size_t>((r * c + 1) / 2)), values(static_cast<size_t>(r * c)) {
    std::mt19937 bits(seed);
    for (auto& b : codes) b = static_cast<uint8_t>(bits() >> 8);
    const int64_t blocks = (r * c + WeightView::kBlock - 1) / WeightView::kBlock;
    if (nested) {
      absmax_q.resize(static_cast<size_t>(blocks));
      for (auto& q : absmax_q) q = static_cast<uint8_t>(bits() >> 8);
      nested_absmax = random_values((blocks + WeightView::kNestedBlock - 1) / WeightView::kNestedBlock, seed + 1);
      nested_code = random_values(256, seed + 2);
      nested_offset = 0.37f;
    } else {
      absmax = random_values(blocks, seed + 1);
    }
    WeightView scales;
    scales.absmax = nested ? nullptr : absmax.data();
    scales.absmax_q = absmax_q.data();
    scales.nested_absmax = nested_absmax.data();
    scales.nested_code = nested_code.data();
    scales.nested_offset = nested_offset;
    for (size_t i = 0; i < values.size(); ++i) {
      const int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
      values[i] = kNf4Code[code] * scales.block_absmax(static_cast<int64_t>(i) / WeightView::kBlock);
    }
  }
};
class DeviceNf4 {
 public:
  DeviceNf4(Context& ctx, const Nf4Matrix& m)
      : m_(m),
        codes_(ctx, m.codes),
        absmax_q_(ctx, m.absmax_q),
        absmax_(ctx, m.absmax),
        nested_absmax_(ctx, m.nested_absmax),
        nested_code_(ctx, m.nested_code) {}
  operator WeightView() const {
    WeightView w;
    w.format = WeightFormat::nf4;
    w.rows = m_.rows;
    w.cols = w.stride = m_.cols;
    w.data = codes_.get();
    if (m_.absmax_q.empty()) {
      w.absmax = absmax_.get();
    } else {
      w.absmax_q = absmax_q_.get();
      w.nested_absmax = nested_absmax_.get();
      w.nested_code = nested_code_.get();
      w.nested_offset = m_.nested_offset;
    }
    return w;
  }

 private:
  const Nf4Matrix& m_;
  DeviceVector<uint8_t> codes_, absmax_q_;
  DeviceVector<float> absmax_, nested_absmax_, nested_code_;
};

/// Every |got - want| <= bound, bounds per element. NaN never passes.
inline void check_close(const std::vector<float>& got, const std::vector<double>& want,
                        const std::vector<double>& bound) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (error <= bound[i]) continue;
    FAIL_CHECK("element ", i, ": ", got[i], ", expected ", want[i], " +- ", bound[i]);
    return;
  }
}

inline constexpr double kF32Eps = 1.0 / (1 << 24),
                        kBf16Eps = 1.0 / (1 << 8);  ///< of one rounding
inline double eps_of(DType t) {
  return t == DType::bf16 ? kBf16Eps : kF32Eps;
}

}  // namespace bantam::test
