// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <algorithm>
#include <cstring>

#include "../error.h"
#include "device.h"

namespace bantam::cuda {

namespace {

// Two halves of pinned memory, filled in turn. A half is filled anew once the last copy out of it is done, so the host
// may be ahead of the device by the copies of the other half.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    // At the end of a thread nobody is left to hear of an error. The device may still read the memory.
    if (memory_) static_cast<void>(cudaStreamSynchronize(stream()));
    for (const cudaEvent_t e : copied_)
      if (e) static_cast<void>(cudaEventDestroy(e));
    if (memory_) static_cast<void>(cudaFreeHost(memory_));
  }

  void copy(void* device, const void* host, size_t bytes) {
    char* const at = take(bytes);
    std::memcpy(at, host, bytes);
    cu_check(cudaMemcpyAsync(device, at, bytes, cudaMemcpyHostToDevice, stream()), "upload");
    cu_check(cudaEventRecord(copied_[half_], stream()), "cudaEventRecord");
  }

 private:
  static constexpr size_t kAlign = 64, kLeast = size_t{256} << 10;

  // Memory that no pending copy reads.
  char* take(size_t bytes) {
    const size_t room = (bytes + kAlign - 1) / kAlign * kAlign;
    if (room > half_bytes_ / 2) grow(2 * room);
    if (used_ + room > half_bytes_) {
      half_ = 1 - half_;
      used_ = 0;
      wait(copied_[half_]);
    }
    char* const at = memory_ + half_ * half_bytes_ + used_;
    used_ += room;
    return at;
  }

  void grow(size_t half_bytes) {
    half_bytes = std::max(half_bytes, kLeast);
    cu_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    if (memory_) cu_check(cudaFreeHost(memory_), "cudaFreeHost");
    memory_ = nullptr;
    half_bytes_ = used_ = 0;
    void* p = nullptr;
    const cudaError_t e = cudaMallocHost(&p, 2 * half_bytes);
    if (e == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorCode::does_not_fit, str("CUDA: no room for ", 2 * half_bytes, " bytes of pinned host memory"),
                  "free memory of the host, or use a smaller micro-batch");
    }
    cu_check(e, "cudaMallocHost");
    memory_ = static_cast<char*>(p);
    half_bytes_ = half_bytes;
    for (cudaEvent_t& event : copied_)
      if (!event) cu_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }

  static void wait(cudaEvent_t event) {
    const cudaError_t e = cudaEventQuery(event);  // an event that was never recorded is done
    if (e != cudaErrorNotReady) return cu_check(e, "cudaEventQuery");
    static_cast<void>(cudaGetLastError());  // "not ready" is no error to be reported later
    cu_check(cudaEventSynchronize(event), "cudaEventSynchronize");
  }

  char* memory_ = nullptr;
  size_t half_bytes_ = 0, used_ = 0;  // used: of the half in use
  size_t half_ = 0;
  cudaEvent_t copied_[2] = {};  // after the last copy out of each half
};

}  // namespace

void upload_async(void* device, const void* host, size_t bytes) {
  thread_local Staging staging;
  if (bytes > 0) staging.copy(device, host, bytes);
}

}  // namespace bantam::cuda
