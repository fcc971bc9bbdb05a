// SPDX-License-Identifier: Apache-2.0
// Does a device compute what the reference computes? A step of a small model on both, in a few seconds.
#pragma once
#include <string>

#include "../../kernels/context.h"

namespace bantam {

struct SelfCheck {
  bool good = false;
  std::string message;  ///< for people: what was compared, or what differs
  double seconds = 0;
};

/// Trains one step (forward, loss, backward) of a small NF4 model with adapters in f32 and in bf16 on `ctx` and on the
/// CPU's scalar tier with one thread, and compares loss and gradients; then once more with every layer recomputed,
/// which must give the same bits. An Error of the device becomes a message.
SelfCheck self_check(Context& ctx);

/// FLOP/s of a matrix product of 1,024 cubed in bf16 on `ctx`: what it can do at best for small products.
double product_rate(Context& ctx);

}  // namespace bantam
