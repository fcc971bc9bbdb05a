// SPDX-License-Identifier: Apache-2.0
// What the sections of bantam_gpu_bench share: a clock that waits for the device, random matrices on it, and a table.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/device_buffer.h"
#include "kernels/tensor.h"
#include "kernels/weight_view.h"

namespace bantam::gpu_bench {

class Bench {
 public:
  /// `tiny`: shapes that an emulated device computes in seconds, each once; the figures then mean nothing.
  Bench(Context& ctx, bool tiny, double limit_seconds);

  Context& ctx;
  const bool tiny;
  double rate = 0;          ///< FLOP/s of a large square product: what shares are of
  double step_seconds = 0;  ///< of a whole step that rebuilds nothing; 0: not measured

  /// Runs a section within `limit` seconds, or what is left of the whole; an Error in it is printed and remembered.
  void section(const std::string& title, double limit, const std::function<void()>& body);
  bool failed() const { return failed_; }
  /// True when the section's time is over; then `what` is printed as left out.
  bool late(const std::string& what);
  /// Returns when the device has done all that it was given.
  void wait();
  /// Seconds of f: once to warm up, then the best average of a few rounds.
  double seconds_of(const std::function<void()>& f);

  /// A line of the table: a figure and what it is a ratio of.
  void row(const std::string& name, const std::string& figure, const std::string& ratio);
  void print_table() const;
  /// "712 TFLOP/s" and "89 % of the product rate".
  void rate_row(const std::string& name, double flops, double seconds);

 private:
  struct Row {
    std::string name, figure, ratio;
  };
  std::vector<Row> rows_;
  double end_, section_end_ = 0;
  bool failed_ = false;
};

double now();
std::string format(const char* pattern, double value);
std::string percent(double share);

/// A matrix on the device: values in [-scale, scale], or whatever lies there where scale is 0.
class Matrix {
 public:
  Matrix(Bench& b, DType dtype, int64_t rows, int64_t cols, float scale = 0);
  TensorView view() const { return {buffer_.data(), dtype_, rows_, cols_}; }
  operator TensorView() const { return view(); }
  operator ConstTensorView() const { return view(); }
  float* f32() const { return static_cast<float*>(buffer_.data()); }

 private:
  DeviceBuffer buffer_;
  DType dtype_;
  int64_t rows_, cols_;
};

/// A random NF4 matrix with nested scales.
class Nf4Weight {
 public:
  Nf4Weight(Bench& b, int64_t rows, int64_t cols);
  operator WeightView() const { return view_; }
  size_t stored_bytes() const { return stored_bytes_; }

 private:
  DeviceBuffer codes_, absmax_q_, nested_absmax_, nested_code_;
  WeightView view_;
  size_t stored_bytes_ = 0;
};

/// A linear layer of an 8B Llama.
struct LinearShape {
  const char* name;
  int64_t out, in;
};
std::vector<LinearShape> linears(const Bench& b);

// The sections.
void product_rate(Bench& b);
void nf4_decoding(Bench& b);
void products(Bench& b);
void attention_rates(Bench& b);
void loss_rates(Bench& b);
void lora_share(Bench& b);
void whole_steps(Bench& b, int64_t layers);

}  // namespace bantam::gpu_bench
