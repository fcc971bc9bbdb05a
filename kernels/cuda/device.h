// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend holds of the device. Host code only. One stream per process, so that uploads, downloads and the
// ops of every thread are ordered; scratch and library handle per thread, so that two Contexts share nothing written.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace bantam::cuda {

/// Throws Error(device) with the call site unless e is cudaSuccess.
void cu_check(cudaError_t e, const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE());
[[noreturn]] void throw_launch(int64_t blocks, const char* file, int line);

/// Throws Error(device) in words when there is no GPU or no driver.
void require_device();
cudaStream_t stream();

/// This thread's scratch: at least `bytes`, 256-byte aligned, valid until the next call. What an op asks for is
/// device_scratch() of its arguments. Without a reserve it grows to the largest request and stays; growing waits for
/// the device. After reserve_workspace() a larger request is Error(internal).
char* workspace(size_t bytes);
/// cudaMalloc; null when there is no room. For what is given back with cudaFree.
void* allocate_raw(size_t bytes);

// The functions of the Backend table.
void reserve_workspace(size_t bytes);
size_t workspace_high();
void* allocate(size_t bytes);
void release(void* p);
void upload(void* device, const void* host, size_t bytes);
void download(void* host, const void* device, size_t bytes);
void fill(void* device, int byte, size_t bytes);

}  // namespace bantam::cuda
