// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "../../kernels/context.h"
#include "../../kernels/device_buffer.h"

namespace bantam {

/// The losses of a step's micro-batches. On a backend with memory of its own they stay there until somebody asks.
class StepLosses {
 public:
  /// For micro-batches of up to max_tokens rows.
  StepLosses(Context& ctx, int64_t max_tokens);
  /// The losses of one micro-batch's rows, in the backend's memory; they may be overwritten by later ops. Waits for the
  /// device only when as many rows wait as kMicroBatches of the largest have.
  void add(const float* losses, std::span<const float> weights);
  /// The weighted sum since the last take() or clear(), and waits for it: rows of a micro-batch in order, then
  /// micro-batches in order, in f64. It does not depend on chunks, threads or schedule.
  double take();
  void clear();
  /// Bytes on a backend with memory of its own.
  static size_t bytes(int64_t max_tokens) { return kMicroBatches * static_cast<size_t>(max_tokens) * sizeof(float); }
  static double weighted_sum(std::span<const float> losses, std::span<const float> weights);

 private:
  static constexpr size_t kMicroBatches = 16;  // of the largest size, that wait on the device
  void fetch();
  Context& ctx_;
  DeviceBuffer memory_;
  size_t capacity_ = 0;
  double sum_ = 0;              // of what the host has
  std::vector<float> weights_;  // of the rows that are still on the device
  std::vector<size_t> sizes_;   // their micro-batches
  std::vector<float> downloaded_;
};

}  // namespace bantam
