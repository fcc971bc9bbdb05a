// SPDX-License-Identifier: Apache-2.0
// A backend library with no op at all, for the tests of loading. BANTAM_TEST_ABI is the table version that it speaks.
#include <cstdlib>
#include <cstring>

#include "kernels/backend.h"

extern "C" const bantam::Backend* bantam_backend(int abi) {
  if (abi != BANTAM_TEST_ABI) return nullptr;
  static const bantam::Backend backend = [] {
    bantam::Backend b{};
    b.name = "empty";
    b.host_memory = true;
    b.allocate = [](size_t bytes) { return std::malloc(bytes); };
    b.release = [](void* p) { std::free(p); };
    b.upload = [](void* d, const void* h, size_t bytes) { std::memcpy(d, h, bytes); };
    b.upload_async = b.upload;
    b.download = [](void* h, const void* d, size_t bytes) { std::memcpy(h, d, bytes); };
    b.fill = [](void* d, int byte, size_t bytes) { std::memset(d, byte, bytes); };
    return b;
  }();
  return &backend;
}
