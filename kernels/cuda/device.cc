// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cstring>

#include "../error.h"

namespace bantam::cuda {

namespace {
const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

struct Scratch {
  void* p = nullptr;
  size_t bytes = 0;
  ~Scratch() {
    // At the end of a thread nobody is left to hear of an error.
    if (p) static_cast<void>(cudaFree(p));
  }
};
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
  thread_local Scratch scratch;
  if (bytes > scratch.bytes) {
    cu_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    if (scratch.p) cu_check(cudaFree(scratch.p), "cudaFree");
    scratch.p = nullptr;
    scratch.bytes = 0;
    scratch.p = allocate(bytes);
    if (!scratch.p)
      throw Error(ErrorCode::does_not_fit, str("CUDA: no room for ", bytes, " bytes of scratch"),
                  "use a smaller micro-batch");
    scratch.bytes = bytes;
  }
  return static_cast<char*>(scratch.p);
}

void* allocate(size_t bytes) {
  void* p = nullptr;
  const cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
  if (e == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  cu_check(e, "cudaMalloc");
  return p;
}

void release(void* p) {
  // Called from destructors. cudaFree waits for the device, so a kernel that still uses p is finished first.
  static_cast<void>(cudaFree(p));
}

void upload(void* device, const void* host, size_t bytes) {
  cu_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()), "upload");
  cu_check(cudaStreamSynchronize(stream()), "upload");
}

void download(void* host, const void* device, size_t bytes) {
  cu_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()), "download");
  cu_check(cudaStreamSynchronize(stream()), "download");
}

void fill(void* device, int byte, size_t bytes) {
  cu_check(cudaMemsetAsync(device, byte, bytes, stream()), "fill");
}

}  // namespace bantam::cuda
