// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN where it takes a call (kernels/cudnn_shapes.h says which), in cudnn_attention.cc; a build
// without cuDNN has no_cudnn.cc instead, where nothing is taken. Host code only.
#pragma once
#include "../attention.h"
#include "../backend.h"

namespace bantam::cuda {

/// Of the Backend table. Opens the library at its first call.
AttentionLibrary attention_library(int device);

/// False: nothing was done, and the backend's own kernels compute it. The answer depends on what the arguments are and
/// on lengths of sequences, never on values, and equal calls get the same one.
bool cudnn_attention(const AttentionArgs& args);
/// The same for gradients; `delta` is not written.
bool cudnn_attention_backward(const AttentionBackwardArgs& args);

}  // namespace bantam::cuda
