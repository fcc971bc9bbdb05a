// SPDX-License-Identifier: Apache-2.0
// Which devices there are, the choice among them, marks of time, and ranges for profilers.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "../error.h"
#include "cuda_ops.h"
#include "device.h"

namespace bantam::cuda {

int device_count() {
  int count = 0;
  cu_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

DeviceInfo device_info(int device) {
  const int count = device_count();
  if (device < 0 || device >= count)
    throw Error(ErrorCode::device, str("CUDA: no device ", device, "; this machine has ", count),
                "`bantam doctor` lists them");
  cu_check(cudaSetDevice(device), "cudaSetDevice");
  DeviceInfo info;
  cudaDeviceProp properties{};
  cu_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const std::string name = properties.name;
  name.copy(info.name, sizeof info.name - 1);
  info.major = properties.major;
  info.minor = properties.minor;
  cu_check(cudaMemGetInfo(&info.memory_free, &info.memory_total), "cudaMemGetInfo");
  info.has_code = has_code();
  cu_check(cudaDriverGetVersion(&info.driver), "cudaDriverGetVersion");
  cu_check(cudaRuntimeGetVersion(&info.runtime), "cudaRuntimeGetVersion");
  // Back to the process's device where there is one. None is touched that nobody asked for: each that is made current
  // holds some hundred MiB from then on.
  if (const int chosen = process_device(kNone); chosen != kNone && chosen != device)
    cu_check(cudaSetDevice(chosen), "cudaSetDevice");
  return info;
}

void open(int device) {
  const DeviceInfo info = device_info(device);
  if (!info.has_code)
    throw Error(ErrorCode::device,
                str("CUDA: device ", device, ", ", info.name, ", has compute capability ", info.major, ".", info.minor,
                    "; this build has no code for it"),
                "build bantam with its architecture in CMAKE_CUDA_ARCHITECTURES, or use `device: cpu`");
  if (const int chosen = process_device(device); chosen != device)
    throw Error(ErrorCode::device,
                str("CUDA: device ", device, " asked for, but this process computes on device ", chosen),
                "one process uses one device");
}

namespace {
cudaEvent_t& event(int slot) {
  thread_local std::vector<cudaEvent_t> events;
  const auto at = static_cast<size_t>(slot);
  if (at >= events.size()) events.resize(at + 1, nullptr);
  if (!events[at]) cu_check(cudaEventCreateWithFlags(&events[at], cudaEventDefault), "cudaEventCreate");
  return events[at];
}
}  // namespace

void time_mark(int slot) {
  const cudaStream_t s = stream();
  cu_check(cudaEventRecord(event(slot), s), "cudaEventRecord");
}

double seconds_between(int slot, int later_slot) {
  if (const cudaError_t e = cudaEventQuery(event(later_slot)); e != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (e != cudaErrorNotReady) cu_check(e, "waiting for the device");
    cu_check(cudaEventSynchronize(event(later_slot)), "waiting for the device");
  }
  float ms = 0;
  cu_check(cudaEventElapsedTime(&ms, event(slot), event(later_slot)), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(ms);
}

void range_begin(const char* name) {
  nvtxRangePushA(name);
}

void range_end() {
  nvtxRangePop();
}

}  // namespace bantam::cuda
