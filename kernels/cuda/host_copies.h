// SPDX-License-Identifier: Apache-2.0
// Activations on their way to host memory and back while the device works: a stream for each direction, as devices have
// an engine for each. Functions of the Backend table.
#pragma once
#include <cstddef>

namespace bantam::cuda {

void copy_out(void* pinned, const void* device, size_t bytes, int slot);
void copy_in(void* device, const void* pinned, size_t bytes, int slot);
void wait_copy(int slot);

}  // namespace bantam::cuda
