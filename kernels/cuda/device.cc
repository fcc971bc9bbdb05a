// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "../error.h"
#include "decoded_weights.h"

namespace bantam::cuda {

namespace {
const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

struct Scratch {
  void* p = nullptr;
  size_t bytes = 0, reserved = 0, high = 0;  // reserved: 0 where it may grow
  ~Scratch() {
    // At the end of a thread nobody is left to hear of an error.
    if (p) static_cast<void>(cudaFree(p));
  }
  void resize(size_t n) {
    cu_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    if (p) cu_check(cudaFree(p), "cudaFree");
    p = nullptr;
    bytes = 0;
    if (n == 0) return;
    p = allocate_raw(n);
    if (!p)
      throw Error(ErrorCode::does_not_fit, str("CUDA: no room for ", n, " bytes of scratch"),
                  "use a smaller micro-batch");
    bytes = n;
  }
};
Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

// Sizes of what allocate() gave, by address. Never destroyed: memory is given back while the program ends.
struct Blocks {
  std::mutex mutex;
  std::map<void*, size_t> bytes;
};
Blocks& blocks() {
  static auto* b = new Blocks;
  return *b;
}
}  // namespace

void cu_check(cudaError_t e, const char* what, const char* file, int line) {
  if (e == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // a later, unrelated call must not report it again
  throw Error(ErrorCode::device,
              str("CUDA: ", what, " failed: ", cudaGetErrorName(e), " (", cudaGetErrorString(e), ") at ",
                  base_name(file), ":", line),
              "see `nvidia-smi` for the state of the GPU; `device: cpu` always works");
}

void throw_launch(int64_t blocks, const char* file, int line) {
  throw Error(
      ErrorCode::device,
      str("CUDA: a grid of ", blocks, " blocks at ", base_name(file), ":", line, "; a grid has 1 to 2147483647"),
      "the tensor is empty or too large for the CUDA backend");
}

void require_device() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaSuccess && count > 0) return;
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaDriverGetVersion(&driver));  // 0 where there is no driver
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  throw Error(ErrorCode::device,
              str("no usable CUDA device: ", e == cudaSuccess ? "none found" : cudaGetErrorName(e), "; driver ", driver,
                  ", runtime ", runtime),
              "install an NVIDIA driver for this runtime or newer, or use `device: cpu`");
}

cudaStream_t stream() {
  static const cudaStream_t s = [] {
    cudaStream_t created;
    cu_check(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "cudaStreamCreate");
    return created;
  }();
  return s;
}

char* workspace(size_t bytes) {
  Scratch& s = scratch();
  s.high = std::max(s.high, bytes);
  if (s.reserved > 0 && bytes > s.reserved)
    throw Error(ErrorCode::internal,
                str("CUDA: an op asks for ", bytes, " bytes of workspace; ", s.reserved, " are reserved"));
  if (bytes > s.bytes) s.resize(bytes);
  return static_cast<char*>(s.p);
}

void reserve_workspace(size_t bytes) {
  Scratch& s = scratch();
  if (bytes == 0) {
    s.resize(0);
    s.high = 0;
  } else if (bytes > s.bytes) {
    s.resize(bytes);
  }
  s.reserved = bytes;
}

size_t workspace_high() {
  return scratch().high;
}

void* allocate_raw(size_t bytes) {
  void* p = nullptr;
  const cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
  if (e == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  cu_check(e, "cudaMalloc");
  return p;
}

void* allocate(size_t bytes) {
  void* const p = allocate_raw(bytes);
  if (p) {
    const std::lock_guard lock(blocks().mutex);
    blocks().bytes[p] = bytes;
  }
  return p;
}

void release(void* p) {
  size_t bytes = 0;
  {
    const std::lock_guard lock(blocks().mutex);
    const auto found = blocks().bytes.find(p);
    if (found != blocks().bytes.end()) {
      bytes = found->second;
      blocks().bytes.erase(found);
    }
  }
  forget_decoded(p, bytes);
  // Called from destructors. cudaFree waits for the device, so a kernel that still uses p is finished first.
  static_cast<void>(cudaFree(p));
}

void upload(void* device, const void* host, size_t bytes) {
  forget_decoded(device, bytes);
  cu_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()), "upload");
  cu_check(cudaStreamSynchronize(stream()), "upload");
}

void download(void* host, const void* device, size_t bytes) {
  cu_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()), "download");
  cu_check(cudaStreamSynchronize(stream()), "download");
}

void fill(void* device, int byte, size_t bytes) {
  forget_decoded(device, bytes);
  cu_check(cudaMemsetAsync(device, byte, bytes, stream()), "fill");
}

}  // namespace bantam::cuda
