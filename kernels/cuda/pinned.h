// SPDX-License-Identifier: Apache-2.0
// Host memory that the device reads and writes by itself, and marks in the order of the ops.
#pragma once
#include <cstddef>

#include "../backend.h"

namespace bantam::cuda {

// The functions of the Backend table.
void* allocate_pinned(size_t bytes);
void release_pinned(void* p);
void upload_pinned(void* device, const void* pinned, size_t bytes);
void download_pinned(void* pinned, const void* device, size_t bytes);
void mark(int slot);
bool reached(int slot);
void wait_for(int slot);

/// Bytes that allocate_pinned() gave and nobody gave back.
size_t pinned_use();

}  // namespace bantam::cuda
