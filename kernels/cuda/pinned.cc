// SPDX-License-Identifier: Apache-2.0
#include "pinned.h"

#include <vector>

#include "decoded_weights.h"
#include "device.h"
#include "ledger.h"

namespace bantam::cuda {

namespace {
Ledger& ledger() {
  static auto* l = new Ledger;  // memory is freed while the program ends
  return *l;
}

cudaEvent_t& event(int slot) {
  thread_local std::vector<cudaEvent_t> events;
  const auto at = static_cast<size_t>(slot);
  if (at >= events.size()) events.resize(at + 1, nullptr);
  if (!events[at]) cu_check(cudaEventCreateWithFlags(&events[at], cudaEventDisableTiming), "cudaEventCreate");
  return events[at];
}
}  // namespace

void* allocate_pinned(size_t bytes) {
  static_cast<void>(stream());  // the thread uses the process's device
  void* p = nullptr;
  const cudaError_t e = cudaMallocHost(&p, bytes ? bytes : 1);
  if (e == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  cu_check(e, "cudaMallocHost");
  ledger().add(p, bytes);
  return p;
}

void release_pinned(void* p) {
  if (!p) return;
  ledger().remove(p);
  // Called from destructors. Nothing says that cudaFreeHost waits for copies that use the memory, on whatever stream.
  if (cudaDeviceSynchronize() != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (cudaFreeHost(p) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

size_t pinned_use() {
  return ledger().use().now;
}

void upload_pinned(void* device, const void* pinned, size_t bytes) {
  forget_decoded(device, bytes);
  cu_check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream()), "upload");
}

void download_pinned(void* pinned, const void* device, size_t bytes) {
  cu_check(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream()), "download");
}

void mark(int slot) {
  cu_check(cudaEventRecord(event(slot), stream()), "cudaEventRecord");
}

bool reached(int slot) {
  const cudaError_t e = cudaEventQuery(event(slot));                  // an event that was never recorded is done
  if (e == cudaErrorNotReady) static_cast<void>(cudaGetLastError());  // no error to be reported later
  if (e != cudaErrorNotReady) cu_check(e, "waiting for the device");
  return e == cudaSuccess;
}

void wait_for(int slot) {
  if (!reached(slot)) cu_check(cudaEventSynchronize(event(slot)), "waiting for the device");
}

}  // namespace bantam::cuda
