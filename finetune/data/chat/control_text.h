// SPDX-License-Identifier: Apache-2.0
// Where texts of control tokens stand in a text, in linear time (Aho and Corasick).
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../text/tokenizer.h"

namespace bantam {

/// Immutable; safe to use from several threads.
class ControlText {
 public:
  /// Empty texts are left out.
  explicit ControlText(std::vector<std::string> tokens);

  /// Every place where one stands, in order; places that share a byte are one.
  std::vector<TextSpan> find(std::string_view text) const;
  bool in(std::string_view text) const { return next(text, 0, nullptr); }
  /// Bytes of the longest one that `text` starts (ends) with; 0: none.
  size_t starts(std::string_view text) const;
  size_t ends(std::string_view text) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  /// Adds all places to `spans`; without it stops at the first one. Whether there was one.
  bool next(std::string_view text, size_t from, std::vector<TextSpan>* spans) const;

  std::unordered_set<std::string, Hash, std::equal_to<>> tokens_;
  std::vector<size_t> lengths_;                   // of the tokens, longest first
  std::array<bool, 256> first_{};                 // bytes that start one
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<uint32_t> fail_;                    // node of the longest proper suffix that starts a token
  std::vector<uint32_t> longest_;                 // node -> bytes of the longest token that ends there; 0: none
};

}  // namespace bantam
