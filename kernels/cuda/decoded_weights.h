// SPDX-License-Identifier: Apache-2.0
// NF4 matrices in the type that products take, kept in slots of device memory that this thread has reserved. A matrix
// is decoded when a product first asks for it, or earlier on a second stream; it stays until its slot is needed for
// another, the least recently used first. What is kept changes no number. Host code only.
#pragma once
#include "../backend.h"
#include "../context.h"
#include "../weight_view.h"
#include "device.h"

namespace bantam::cuda {

/// The matrix as a dense one of t, for products that are launched on stream() before this thread's next call of a
/// function of this header. Without slots it is decoded anew each time, into memory that grows to the largest matrix.
/// Error(internal) when there are slots and none is large enough. w is nf4.
const void* decoded_weight(const WeightView& w, DType t);

/// Drops what was decoded from codes in [p, p + bytes), of all threads: that memory is freed or gets other contents.
void forget_decoded(const void* p, size_t bytes);

// The functions of the Backend table.
void prefetch_weight(Context& ctx, const WeightView& w, Math math);
void reserve_decoded_weights(const size_t* slots, size_t count);
size_t weights_decoded(bool ahead);

}  // namespace bantam::cuda
