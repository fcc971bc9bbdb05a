// SPDX-License-Identifier: Apache-2.0
// Texts to ids, looked up by view: the tables that encoding asks for each word.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// A hash table from texts to ids. The texts are copied into one block.
class TextTable {
 public:
  void reserve(size_t texts, size_t bytes = 0) {
    size_t n = 16;
    while (n < 2 * texts) n *= 2;
    if (n > slots_.size()) rehash(n);
    block_.reserve(bytes);
  }
  /// False when `text` is there already; it then keeps its id, or takes the new one with `replace`.
  bool add(std::string_view text, int32_t id, bool replace = false) {
    if (2 * (count_ + 1) > slots_.size()) rehash(slots_.empty() ? 16 : 2 * slots_.size());
    const uint64_t hash = hash_of(text);
    Slot& slot = slots_[place(text, hash)];
    if (slot.id >= 0) {
      if (replace) slot.id = id;
      return false;
    }
    slot = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(text.size()), block_.size(), id};
    block_ += text;
    longest_ = text.size() > longest_ ? text.size() : longest_;
    ++count_;
    return true;
  }
  /// -1: not there.
  int32_t find(std::string_view text) const {
    if (count_ == 0 || text.size() > longest_) return -1;
    return slots_[place(text, hash_of(text))].id;
  }
  size_t size() const { return count_; }
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    uint32_t tag = 0, size = 0;
    uint64_t at = 0;
    int32_t id = -1;
  };

  static uint64_t mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  static uint64_t hash_of(std::string_view s) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u, kOther = 0xD6E8FEB86659FD93u;
    uint64_t h = s.size() * kOdd;
    size_t i = 0;
    for (; i + 8 <= s.size(); i += 8) {
      uint64_t v = 0;
      std::memcpy(&v, s.data() + i, 8);
      h = mix(h ^ v, kOther);
    }
    if (i < s.size()) {
      uint64_t v = 0;
      std::memcpy(&v, s.data() + i, s.size() - i);
      h = mix(h ^ v, kOther);
    }
    return mix(h ^ kOther, kOdd);
  }
  // Where `text` is, or the free slot where it would be.
  size_t place(std::string_view text, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = static_cast<size_t>(hash) & mask;; i = (i + 1) & mask) {
      const Slot& s = slots_[i];
      if (s.id < 0) return i;
      if (s.tag == tag && s.size == text.size() && std::memcmp(block_.data() + s.at, text.data(), text.size()) == 0) {
        return i;
      }
    }
  }
  void rehash(size_t n) {
    std::vector<Slot> old(n);
    old.swap(slots_);
    for (const Slot& s : old) {
      if (s.id < 0) continue;
      const std::string_view text(block_.data() + s.at, s.size);
      slots_[place(text, hash_of(text))] = s;
    }
  }

  std::vector<Slot> slots_;
  std::string block_;
  size_t count_ = 0, longest_ = 0;
};

}  // namespace bantam
