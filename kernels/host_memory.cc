// SPDX-License-Identifier: Apache-2.0
#include "host_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace bantam {

namespace {

constexpr size_t kHuge = size_t{2} << 20, kSmall = 64;

// Stands in front of a block.
struct Header {
  void* base;
  size_t bytes;
};

}  // namespace

void* allocate_host(size_t bytes) {
  const size_t align = bytes >= kHuge ? kHuge : kSmall;
  const size_t total = bytes + align + sizeof(Header);
  void* base = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const auto start = (reinterpret_cast<uintptr_t>(base) + sizeof(Header) + align - 1) / align * align;
#ifdef MADV_HUGEPAGE
  if (align == kHuge) ::madvise(reinterpret_cast<void*>(start), bytes / kHuge * kHuge, MADV_HUGEPAGE);
#endif
  auto* header = reinterpret_cast<Header*>(start - sizeof(Header));
  *header = {base, total};
  return reinterpret_cast<void*>(start);
}

void release_host(void* p) {
  if (!p) return;
  const Header header = *reinterpret_cast<Header*>(static_cast<char*>(p) - sizeof(Header));
  ::munmap(header.base, header.bytes);
}

}  // namespace bantam
