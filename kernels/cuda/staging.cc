// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <algorithm>
#include <cstring>

#include "../device_scratch.h"
#include "../error.h"
#include "device.h"
#include "pinned.h"

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
    release_pinned(memory_);  // the device may still read it
    for (const cudaEvent_t e : copied_)
      if (e) static_cast<void>(cudaEventDestroy(e));
  }

  void copy(void* device, const void* host, size_t bytes) {
    char* const at = take(bytes);
    std::memcpy(at, host, bytes);
    cu_check(cudaMemcpyAsync(device, at, bytes, cudaMemcpyHostToDevice, stream()), "upload");
    cu_check(cudaEventRecord(copied_[half_], stream()), "cudaEventRecord");
  }

  void reserve(size_t bytes) {
    // What grew on demand is not what was planned.
    if (bytes == 0 || bytes > 2 * half_bytes_ || (reserved_ == 0 && bytes != 2 * half_bytes_)) resize(bytes);
    if (bytes == 0) high_ = 0;
    reserved_ = bytes;
  }
  size_t high() const { return high_; }

 private:
  static constexpr size_t kLeast = size_t{512} << 10;

  // Memory that no pending copy reads.
  char* take(size_t bytes) {
    high_ = std::max(high_, bytes);
    const size_t room = staging_bytes(bytes) / 4;
    if (reserved_ > 0 && staging_bytes(bytes) > reserved_)
      throw Error(ErrorCode::internal, str("CUDA: an upload of ", bytes, " bytes goes through ", staging_bytes(bytes),
                                           " bytes of pinned host memory; ", reserved_, " are reserved"));
    if (room > half_bytes_ / 2) resize(std::max(staging_bytes(bytes), kLeast));
    if (used_ + room > half_bytes_) {
      half_ = 1 - half_;
      used_ = 0;
      wait(copied_[half_]);
    }
    char* const at = memory_ + half_ * half_bytes_ + used_;
    used_ += room;
    return at;
  }

  void resize(size_t bytes) {
    release_pinned(memory_);  // which waits for the device
    memory_ = nullptr;
    half_bytes_ = used_ = 0;
    if (bytes == 0) return;
    memory_ = static_cast<char*>(allocate_pinned(bytes));
    if (!memory_)
      throw Error(ErrorCode::does_not_fit, str("CUDA: no room for ", bytes, " bytes of pinned host memory"),
                  "free memory of the host, or use a smaller micro-batch");
    half_bytes_ = bytes / 2;
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
  size_t reserved_ = 0, high_ = 0;    // reserved: 0 where it may grow
  size_t half_ = 0;
  cudaEvent_t copied_[2] = {};  // after the last copy out of each half
};

Staging& staging() {
  thread_local Staging s;
  return s;
}

}  // namespace

void upload_async(void* device, const void* host, size_t bytes) {
  if (bytes > 0) staging().copy(device, host, bytes);
}

void reserve_staging(size_t bytes) {
  staging().reserve(bytes);
}

size_t staging_high() {
  return staging().high();
}

}  // namespace bantam::cuda
