// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_memory.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

using namespace bantam;

TEST_CASE("blocks are zero, aligned, writable to the last byte, and released") {
  for (const size_t bytes :
       {size_t{1}, size_t{64}, size_t{4097}, (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    CAPTURE(bytes);
    auto* p = static_cast<unsigned char*>(allocate_host(bytes));
    REQUIRE(p != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(p) % (bytes >= size_t{2} << 20 ? size_t{2} << 20 : 64) == 0);
    CHECK(p[0] == 0);
    CHECK(p[bytes - 1] == 0);
    std::memset(p, 0xff, bytes);
    release_host(p);
  }
  release_host(nullptr);
  CHECK(allocate_host(SIZE_MAX / 4) == nullptr);
}
