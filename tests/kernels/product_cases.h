// SPDX-License-Identifier: Apache-2.0
// Random operands of products and their double-precision reference, shared by the product tests.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/nf4_codebook.h"
#include "kernels/product.h"

namespace bantam::test {

inline std::mt19937_64& rng() {
  static std::mt19937_64 generator(7);
  return generator;
}
inline float uniform() {
  return static_cast<float>(static_cast<int64_t>(rng()() % 20001) - 10000) / 10000.0f;
}

/// A stored matrix of any format with random content; rows are `gap` elements apart beyond their columns (not nf4).
struct Matrix {
  WeightView view;
  std::vector<float> f32;
  std::vector<bf16> half;
  std::vector<uint8_t> codes, absmax_q;
  std::vector<float> absmax, nested_absmax, nested_code;

  Matrix(WeightFormat format, int64_t rows, int64_t cols, bool nested = false, int64_t gap = 0) {
    const bool nf4 = format == WeightFormat::nf4;
    view.format = format;
    view.rows = rows, view.cols = cols, view.stride = nf4 ? cols : cols + gap;
    const auto n = static_cast<size_t>(rows * view.stride), blocks = (n + 63) / 64;
    if (format == WeightFormat::f32) {
      f32.resize(n);
      for (float& x : f32) x = uniform();
      view.data = f32.data();
    } else if (format == WeightFormat::bf16) {
      half.resize(n);
      for (bf16& x : half) x = to_bf16(uniform());
      view.data = half.data();
    } else {
      codes.resize((n + 1) / 2);
      for (uint8_t& x : codes) x = static_cast<uint8_t>(rng()());
      view.data = codes.data();
      if (nested) {
        absmax_q.resize(blocks);
        for (uint8_t& x : absmax_q) x = static_cast<uint8_t>(rng()());
        nested_absmax.resize((blocks + 255) / 256);
        for (float& x : nested_absmax) x = 0.5f + 0.25f * uniform();
        nested_code.resize(256);
        for (float& x : nested_code) x = uniform();
        view.absmax_q = absmax_q.data(), view.nested_absmax = nested_absmax.data(),
        view.nested_code = nested_code.data();
        view.nested_offset = 0.3f;
      } else {
        absmax.resize(blocks);
        for (float& x : absmax) x = 0.5f + 0.5f * uniform();
        view.absmax = absmax.data();
      }
    }
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  /// What a product under `math` sees of an element, in a tier without bf16 arithmetic.
  float at(int64_t r, int64_t c, Math math) const {
    const int64_t i = r * view.stride + c;
    if (view.format == WeightFormat::f32) return f32[static_cast<size_t>(i)];
    if (view.format == WeightFormat::bf16) return to_f32(half[static_cast<size_t>(i)]);
    const uint8_t byte = codes[static_cast<size_t>(i / 2)];
    const float v = kNf4Code[i % 2 ? byte & 15 : byte >> 4] * view.block_absmax(i / 64);
    return math == Math::bf16 ? to_f32(to_bf16(v)) : v;
  }
  /// As a left operand; f32 and bf16 only.
  ConstTensorView tensor() const {
    return {view.data, view.format == WeightFormat::bf16 ? DType::bf16 : DType::f32, view.rows, view.cols, view.stride};
  }
};

/// One summand with its operands.
struct Term {
  int64_t k;
  bool transposed, nn;
  Matrix a, b;
  Term(int64_t m, int64_t n, int64_t k_, WeightFormat a_format, WeightFormat b_format, bool nn_, bool transposed_,
       bool nested = false, int64_t gap = 0)
      : k(k_),
        transposed(transposed_),
        nn(nn_),
        a(a_format, transposed_ ? k_ : m, transposed_ ? m : k_, false, gap),
        b(b_format, nn_ ? k_ : n, nn_ ? n : k_, nested, gap) {}
  ProductTerm view() const {
    ProductTerm t;
    t.a = a.tensor();
    t.b = b.view;
    t.layout = nn ? BLayout::nn : BLayout::nt;
    t.a_transposed = transposed;
    return t;
  }
  float a_at(int64_t i, int64_t kk, Math math) const { return transposed ? a.at(kk, i, math) : a.at(i, kk, math); }
  float b_at(int64_t j, int64_t kk, Math math) const { return nn ? b.at(kk, j, math) : b.at(j, kk, math); }
};

/// Sum of products in double, and the sum of their magnitudes, which bounds every rounding error.
struct Reference {
  double sum = 0, magnitude = 0;
  void add(const Term& t, int64_t i, int64_t j, Math math) {
    for (int64_t k = 0; k < t.k; ++k) {
      const double p = static_cast<double>(t.a_at(i, k, math)) * static_cast<double>(t.b_at(j, k, math));
      sum += p, magnitude += std::fabs(p);
    }
  }
};

}  // namespace bantam::test
