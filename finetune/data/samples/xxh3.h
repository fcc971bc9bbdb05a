// SPDX-License-Identifier: Apache-2.0
// XXH3 of bytes that come in pieces: checksums of files and names of cache entries, not for security.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace bantam {

class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  Xxh3& add(const void* bytes, size_t n);
  uint64_t digest() const;
  std::string digest128() const;  ///< 32 lower-case hex digits
  static uint64_t of(const void* bytes, size_t n);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
