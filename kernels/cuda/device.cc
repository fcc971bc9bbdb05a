// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "../error.h"
#include "decoded_weights.h"
#include "ledger.h"
#include "pinned.h"

namespace bantam::cuda {

namespace {
struct Process {  // what all threads share
  std::mutex mutex;
  int device = kNone;
  Ledger memory;
};
Process& process() {
  static auto* p = new Process;  // memory is freed while the program ends
  return *p;
}

// The runtime's current device belongs to the thread.
void use_device() {
  thread_local bool done = false;
  if (done) return;
  const int device = process_device(0);
  cu_check(cudaSetDevice(device), "cudaSetDevice");
  done = true;
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

struct Scratch {
  void* p = nullptr;
  size_t bytes = 0, reserved = 0, high = 0;  // reserved: 0 where it may grow
  ~Scratch() { release_raw(p); }
  void resize(size_t n) {
    cu_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    release_raw(p);
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
}  // namespace

namespace {
// What the errors mean that a user can do something about.
const char* advice(cudaError_t e) {
  switch (e) {
    case cudaErrorMemoryAllocation:
      return "the GPU's memory is full: other processes in `nvidia-smi`, or a smaller micro_batch_size";
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
      return "the NVIDIA driver is older than this build's CUDA: update the driver, or use `device: cpu`";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "this build has no code for the GPU: build bantam with its architecture in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorDevicesUnavailable:
      return "another process holds the GPU (`nvidia-smi` shows it, and the compute mode), or it is being reset";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
      return "the GPU reports faulty hardware: `nvidia-smi -q`, then reset it; the last checkpoint is intact";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "a kernel failed, which is a bug: please report it with the recipe; the last checkpoint is intact";
    case cudaErrorLaunchTimeout:
      return "the GPU also drives a display, whose watchdog ended a kernel: a smaller micro_batch_size";
    default:
      return "`nvidia-smi` shows the state of the GPU; `device: cpu` always works";
  }
}
}  // namespace

void cu_check(cudaError_t e, const char* what, const char* file, int line) {
  if (e == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // a later, unrelated call must not report it again
  throw Error(ErrorCode::device,
              str("CUDA: ", what, " failed: ", cudaGetErrorName(e), " (", cudaGetErrorString(e), ") at ",
                  base_name(file), ":", line),
              advice(e));
}

void throw_launch(int64_t blocks, const char* file, int line) {
  throw Error(
      ErrorCode::device,
      str("CUDA: a grid of ", blocks, " blocks at ", base_name(file), ":", line, "; a grid has 1 to 2147483647"),
      "the tensor is empty or too large for the CUDA backend");
}

// 12040 is "12.4".
std::string version_text(int v) {
  return v == 0 ? "none" : str(v / 1000, ".", v % 1000 / 10);
}

void require_device() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaSuccess && count > 0) return;
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaDriverGetVersion(&driver));  // 0 where there is no driver
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  throw Error(ErrorCode::device,
              str("no usable CUDA device: ", e == cudaSuccess ? "none found" : cudaGetErrorName(e),
                  "; driver's CUDA version ", version_text(driver), ", needed ", version_text(runtime)),
              "install an NVIDIA driver for this runtime or newer, or use `device: cpu`");
}

int process_device(int wanted) {
  const std::lock_guard lock(process().mutex);
  if (process().device < 0) process().device = wanted;
  return process().device;
}

MemoryUse memory_use() {
  const Ledger::Use device = process().memory.use();
  return {.now = device.now, .most = device.most, .pinned = pinned_use()};
}

void synchronize() {
  cu_check(cudaStreamSynchronize(stream()), "waiting for the device");
}

cudaStream_t stream() {
  use_device();
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
  use_device();
  void* p = nullptr;
  const cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
  if (e == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  cu_check(e, "cudaMalloc");
  process().memory.add(p, bytes ? bytes : 1);
  return p;
}

void* allocate(size_t bytes) {
  return allocate_raw(bytes);
}

void release_raw(void* p) {
  if (!p) return;
  process().memory.remove(p);
  // Called from destructors. cudaFree waits for the device, so a kernel that still uses p is finished first.
  if (cudaFree(p) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

void release(void* p) {
  forget_decoded(p, process().memory.bytes(p));
  release_raw(p);
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
