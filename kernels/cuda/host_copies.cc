// SPDX-License-Identifier: Apache-2.0
#include "host_copies.h"

#include <vector>

#include "decoded_weights.h"
#include "device.h"

namespace bantam::cuda {

namespace {

cudaStream_t new_stream() {
  static_cast<void>(stream());  // the device is chosen
  cudaStream_t s;
  cu_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
  return s;
}
cudaStream_t out_stream() {
  static const cudaStream_t s = new_stream();
  return s;
}
cudaStream_t in_stream() {
  static const cudaStream_t s = new_stream();
  return s;
}

// Of a thread: where the ops are when a copy is asked for, and the end of the last copy of each slot.
class Events {
 public:
  Events() = default;
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (const cudaEvent_t e : done_) static_cast<void>(cudaEventDestroy(e));
    if (reached_) static_cast<void>(cudaEventDestroy(reached_));
  }
  cudaEvent_t reached() { return reached_ ? reached_ : reached_ = create(); }
  cudaEvent_t done(int slot) {
    while (static_cast<int>(done_.size()) <= slot) done_.push_back(create());
    return done_[static_cast<size_t>(slot)];
  }

 private:
  static cudaEvent_t create() {
    cudaEvent_t e;
    cu_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreate");
    return e;
  }
  std::vector<cudaEvent_t> done_;
  cudaEvent_t reached_ = nullptr;
};
Events& events() {
  thread_local Events e;
  return e;
}

// All orders between copies go through the ops' stream: what a copy reads or writes is free of ops launched before, and
// of copies that they waited for.
void copy_on(cudaStream_t on, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, int slot) {
  const cudaEvent_t reached = events().reached();
  cu_check(cudaEventRecord(reached, stream()), "cudaEventRecord");
  cu_check(cudaStreamWaitEvent(on, reached, 0), "cudaStreamWaitEvent");
  cu_check(cudaMemcpyAsync(to, from, bytes, kind, on), "copy to or from pinned memory");
  cu_check(cudaEventRecord(events().done(slot), on), "cudaEventRecord");
}

}  // namespace

void copy_out(void* to, const void* device, size_t bytes, int slot) {
  copy_on(out_stream(), to, device, bytes, cudaMemcpyDeviceToHost, slot);
}

void copy_in(void* device, const void* from, size_t bytes, int slot) {
  forget_decoded(device, bytes);
  copy_on(in_stream(), device, from, bytes, cudaMemcpyHostToDevice, slot);
}

void wait_copy(int slot) {
  cu_check(cudaStreamWaitEvent(stream(), events().done(slot), 0), "cudaStreamWaitEvent");
}

}  // namespace bantam::cuda
