// SPDX-License-Identifier: Apache-2.0
// One attention as a graph of cuDNN's frontend: causal, over packed sequences of any lengths. Host code only. This
// header includes nothing of cuDNN: the frontend takes half a minute to compile, once.
#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct cudnnContext;
namespace cudnn_frontend::graph {
class Graph;
}

namespace bantam::cuda {

/// The matrices of both directions; a forward has those up to kLse.
enum CudnnTensor { kQ, kK, kV, kO, kLse, kDout, kDq, kDk, kDv, kCudnnTensors };

/// What a plan is made for. Sequences may be fewer, or of length 0, and shorter than `length`.
struct CudnnShape {
  bool backward = false;
  int capability = 0;  ///< of the device, 10 * major + minor
  int64_t sequences = 0, length = 0;
  int64_t tokens = 0;  ///< at most, in all; 0 in a forward
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;  ///< as in AttentionShape
  float scale = 0;
  std::array<int64_t, kCudnnTensors> strides{};  ///< elements from one token to the next
  auto operator<=>(const CudnnShape&) const = default;
};

/// Device pointers of one call. offsets[i][s]: the element of matrix i at which sequence s begins, [sequences + 1];
/// lengths: tokens of each, [sequences].
struct CudnnPointers {
  std::array<void*, kCudnnTensors> data{};
  std::array<const int32_t*, kCudnnTensors> offsets{};
  const int32_t* lengths = nullptr;
};

/// The version of the library, opened at the first call; 0 and `why` in words where it cannot be had. Sets
/// CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT=0 unless it is set: the only way to tell the frontend that Hopper's
/// deterministic backward is to take memory that grows with the tokens, not with the square of the longest sequence.
int cudnn_version(std::string* why);

/// A handle that works in `stream` (a cudaStream_t) of the calling thread's device. Error(device).
std::shared_ptr<cudnnContext> cudnn_handle(void* stream);

/// The graph; nothing is checked, no device is touched.
std::shared_ptr<cudnn_frontend::graph::Graph> cudnn_graph(const CudnnShape& shape);
/// Makes its plan: the empty string and the workspace in bytes, or what cuDNN has against it. A null handle makes it
/// for the device properties that the graph was given.
std::string cudnn_plan(cudnn_frontend::graph::Graph& graph, cudnnContext* handle, size_t* workspace);
/// Error(device) with cuDNN's words.
void cudnn_run(const CudnnShape& shape, cudnn_frontend::graph::Graph& graph, cudnnContext* handle,
               const CudnnPointers& pointers, void* workspace);

/// Opens the library: a handle of the dynamic loader; null and `why`. In cudnn_library.cc; the emulated device has its
/// own.
void* open_cudnn(std::string* why);

}  // namespace bantam::cuda
