// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend holds of the device. Host code only. One stream per process, so that uploads, downloads and the
// ops of every thread are ordered; scratch and library handle per thread, so that two Contexts share nothing written.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "../backend.h"

namespace bantam::cuda {

/// Throws Error(device) with the call site unless e is cudaSuccess.
void cu_check(cudaError_t e, const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE());
[[noreturn]] void throw_launch(int64_t blocks, const char* file, int line);

/// Throws Error(device) in words when there is no GPU or no driver.
void require_device();
/// The process's stream. The calling thread uses the process's device from then on.
cudaStream_t stream();
/// The device of this process: `wanted` when none is chosen yet; kNone chooses none.
inline constexpr int kNone = -1;
int process_device(int wanted);

/// This thread's scratch: at least `bytes`, 256-byte aligned, valid until the next call. What an op asks for is
/// device_scratch() of its arguments. Without a reserve it grows to the largest request and stays; growing waits for
/// the device. After reserve_workspace() a larger request is Error(internal).
char* workspace(size_t bytes);
/// cudaMalloc, null when there is no room, and cudaFree, for what holds no weights; both count in memory_use().
void* allocate_raw(size_t bytes);
void release_raw(void* p);

// The functions of the Backend table.
int device_count();
DeviceInfo device_info(int device);
void open(int device);
void synchronize();
MemoryUse memory_use();
void time_mark(int slot);
double seconds_between(int slot, int later_slot);
void range_begin(const char* name);
void range_end();
void reserve_workspace(size_t bytes);
size_t workspace_high();
void* allocate(size_t bytes);
void release(void* p);
void upload(void* device, const void* host, size_t bytes);
void download(void* host, const void* device, size_t bytes);
void fill(void* device, int byte, size_t bytes);

}  // namespace bantam::cuda
