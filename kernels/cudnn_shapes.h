// SPDX-License-Identifier: Apache-2.0
// Which attention cuDNN takes, and how much workspace it may use: of shapes, types and addresses, the version of the
// library and the device alone, so that a plan knows before anything is allocated, and so that a forward and the same
// forward rebuilt by a recompute go the same way. Compiled into bantam and into the backend's library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "attention.h"
#include "backend.h"

namespace bantam {

/// The oldest cuDNN that is used, 9.12.
inline constexpr int kCudnnLeast = 91200;
/// 92801 is "9.28.1".
std::string cudnn_text(int version);
/// More sequences in a strip go to the backend's own kernels.
inline constexpr int64_t kCudnnSequences = 1024;
/// Lengths of the sequences, and where each begins in each of the (at most nine) matrices: a multiple of 256 bytes.
inline constexpr size_t kCudnnTable = (10 * (kCudnnSequences + 1) * sizeof(int32_t) + 255) / 256 * 256;
/// What a plan may take beside what grows with the tokens: counters of the tiles. cuDNN 9.28.1 takes 17 KiB in the
/// forward, and 8 bytes for each 64 rows of each sequence and head, each as long as the longest, in the backward.
inline constexpr size_t kCudnnEngine = size_t{4} << 20;

/// True when cuDNN's attention computes these arguments, if cu_q equals cu_k, there are at most kCudnnSequences, and it
/// makes a plan within cudnn_workspace(). Nothing is read through a pointer.
bool cudnn_takes(const AttentionArgs& args, const AttentionLibrary& library);
/// The same of the backward: where its algorithm is deterministic, on Hopper (cuDNN 9.25) and on the Blackwell of data
/// centres (9.18).
bool cudnn_takes(const AttentionBackwardArgs& args, const AttentionLibrary& library);

/// Bytes that a plan may take: what grows with the tokens in f32 (dq while it is summed up; dk and dv of each query
/// head where heads share keys; the sums of the softmax), and kCudnnEngine. A plan that wants more is not used.
size_t cudnn_workspace(const AttentionArgs& args, const AttentionLibrary& library);
size_t cudnn_workspace(const AttentionBackwardArgs& args, const AttentionLibrary& library);
/// Bytes of a dout of f32 as bf16, which is what cuDNN takes; 0 where it is bf16. (LoRA with dropout gives one of f32.)
size_t cudnn_converted(const AttentionArgs& args);
size_t cudnn_converted(const AttentionBackwardArgs& args);

// Plans are made for classes of shapes, so that not every packing needs its own.
/// The smallest power of two that is at least n and `least`.
int64_t power_class(int64_t n, int64_t least);
/// Tokens of a strip: powers of two in quarters (.. 1024 1280 1536 1792 2048 ..), at least 256.
int64_t token_class(int64_t tokens);

}  // namespace bantam
