// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the fake runtime.
#pragma once
#include <vector>

#include "engine.h"
#undef cudaLaunchKernelEx

namespace coc {

// Never destroyed: backends free their memory while the program ends.
template <class T>
std::vector<T>& registry() {
  static auto* v = new std::vector<T>;
  return *v;
}

/// Reads the environment, once; every call of the runtime begins with it.
void init();
void init_streams();
/// True when the environment variable is set, and not to 0.
bool flag(const char* name);
/// Keeps an error for cudaGetLastError.
cudaError_t set_error(cudaError_t e);
/// Does all that was asked of the device.
void drain_all();
/// Calls so far that wait for the device, or may on a real one.
extern unsigned long sync_count;

}  // namespace coc

#define ENTER(api)                                                         \
  do {                                                                     \
    cudaError_t injected_error = cudaSuccess;                              \
    coc::init();                                                           \
    if (injected(#api, &injected_error)) return set_error(injected_error); \
  } while (0)
