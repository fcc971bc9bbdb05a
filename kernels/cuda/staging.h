// SPDX-License-Identifier: Apache-2.0
// Host memory on its way to the device while the device works.
#pragma once
#include <cstddef>

namespace bantam::cuda {

/// Copies to the device in order with the ops and waits for none of them; `host` is free on return. The bytes go
/// through pinned memory of the calling thread: two halves, each of room for two of the largest copies (staging_bytes).
/// Filling a half again waits for copies out of it that are not done, which are at least one largest copy behind.
/// Without a reserve it grows to the largest copy so far (512 KiB at least); growing waits for the device.
void upload_async(void* device, const void* host, size_t bytes);

// The functions of the Backend table.
void reserve_staging(size_t bytes);
size_t staging_high();

}  // namespace bantam::cuda
