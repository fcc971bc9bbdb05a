// SPDX-License-Identifier: Apache-2.0
// Host memory on its way to the device while the device works.
#pragma once
#include <cstddef>

namespace bantam::cuda {

/// Copies to the device in order with the ops and waits for none of them; `host` is free on return. The bytes go
/// through pinned memory of the calling thread: two halves, each of room for two copies of the largest size so far (256
/// KiB at least). Growing waits for the device, so it happens in the first step; filling a half again waits for copies
/// out of it that are not done, which are at least one largest copy behind.
void upload_async(void* device, const void* host, size_t bytes);

}  // namespace bantam::cuda
