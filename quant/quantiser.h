// SPDX-License-Identifier: Apache-2.0
// NF4 of a source's matrices, on the host's threads or on a device: the same bytes. Not a public header.
#pragma once
#include <memory>

#include "../kernels/context.h"
#include "nf4.h"

namespace bantam {

/// Values of a slab that goes to the device at once: enough for copies to run at the bus's speed.
inline constexpr int64_t kDeviceSlab = int64_t{1} << 22;

/// Bytes of a device's memory that quantising the source there takes, however large it is: two slabs of its matrices
/// and what becomes of them. As much of the host's memory is pinned.
size_t quantise_device_bytes(const TensorSource& source, int64_t slab_elements = kDeviceSlab);

class Quantiser {
 public:
  /// `threads` of the host read and decode. `device`: null or of a backend that works on host memory: they quantise,
  /// too. Else its device does, of which quantise_device_bytes() are held as long as this object lives; used by the
  /// calling thread. Both must outlive this. Error(does_not_fit).
  Quantiser(const TensorSource& source, int threads, Context* device, int64_t slab_elements = kDeviceSlab);
  ~Quantiser();
  /// Tensor i, as nf4_quantise(source, i, ...) has it. While the device works on one slab, the host decodes the next.
  /// Error(numeric) the same; Error(device) with the tensor and the device: nothing else is tried.
  Nf4Matrix quantise(size_t i, bool double_quant);
  ThreadPool& pool() { return pool_; }
  /// Of the device, now.
  size_t device_bytes() const;

 private:
  class Slabs;
  const TensorSource& source_;
  ThreadPool pool_;
  std::unique_ptr<Slabs> slabs_;  // null: on the host
};

}  // namespace bantam
