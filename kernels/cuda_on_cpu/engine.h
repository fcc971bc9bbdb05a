// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the emulation; not for kernels or host code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "cuda_on_cpu.h"

// COC_TSAN comes from the command line: the engine itself is compiled without -fsanitize=thread.
#if defined(__SANITIZE_ADDRESS__)
#define COC_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define COC_POISON(p, n) __asan_poison_memory_region(p, n)
#define COC_UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define COC_POISON(p, n) ((void)(p), (void)(n))
#define COC_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace coc {

// Limits of the pretended device: the smallest among the GPUs that we support (sm_86, sm_89, sm_120).
inline constexpr size_t kSharedDefault = 48 * 1024, kSharedOptIn = 99 * 1024;
inline constexpr int kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32;

/// Device memory is accessible while one of these lives (matters with COC_GUARD=1).
struct DeviceScope {
  DeviceScope();
  ~DeviceScope();
};
/// Bytes from p to the end of its device allocation; 0 when p is no device pointer.
size_t device_bytes_at(const void* p);
/// Runs the work at once, or with COC_DEFER=1 when a synchronisation asks for it.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// True when this call is to fail: COC_NO_DEVICE=1, or COC_FAIL=<api>:<code>.
bool injected(const char* api, cudaError_t* error);
size_t dynamic_shared_limit(const void* kernel);
/// The program under test has an error that a GPU would answer with garbage: message and abort.
[[noreturn]] void fail(const char* file, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace coc
