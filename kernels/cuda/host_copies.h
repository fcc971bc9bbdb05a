// SPDX-License-Identifier: Apache-2.0
// Activations on their way to host memory and back while the device works: pinned memory, and a stream for each
// direction, as devices have an engine for each. Functions of the Backend table.
#pragma once
#include <cstddef>

namespace bantam::cuda {

void* allocate_pinned(size_t bytes);
void release_pinned(void* p);
size_t pinned_bytes();
void copy_out(void* pinned, const void* device, size_t bytes, int slot);
void copy_in(void* device, const void* pinned, size_t bytes, int slot);
void wait_copy(int slot);

}  // namespace bantam::cuda
