// SPDX-License-Identifier: Apache-2.0
#include "xxh3.h"

#include <xxhash.h>

#include <new>

#include "../../../kernels/hash.h"

namespace bantam {

// The state has an alignment of its own, which the library's allocator knows.
struct Xxh3::State {
  XXH3_state_t* state = XXH3_createState();
  State() {
    if (!state) throw std::bad_alloc();
    XXH3_128bits_reset(state);  // the same state serves both widths
  }
  ~State() { XXH3_freeState(state); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

Xxh3& Xxh3::add(const void* bytes, size_t n) {
  if (n > 0) XXH3_128bits_update(state_->state, bytes, n);
  return *this;
}

uint64_t Xxh3::digest() const {
  return XXH3_128bits_digest(state_->state).low64;
}

std::string Xxh3::digest128() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->state);
  return hex64(h.high64) + hex64(h.low64);
}

uint64_t Xxh3::of(const void* bytes, size_t n) {
  return XXH3_128bits(bytes, n).low64;
}

}  // namespace bantam
