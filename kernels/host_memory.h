// SPDX-License-Identifier: Apache-2.0
// Large blocks of host memory, straight from the system: given back at once when released, and on huge pages where the
// kernel offers them (a step touches hundreds of megabytes, which small pages make a matter of address translation).
#pragma once
#include <cstddef>

namespace bantam {

/// Zero-filled, at a multiple of 64 bytes (2 MiB for blocks of that size or more); null when there is none.
void* allocate_host(size_t bytes);
/// Null is fine.
void release_host(void* p);

}  // namespace bantam
