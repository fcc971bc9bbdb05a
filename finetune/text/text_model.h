// SPDX-License-Identifier: Apache-2.0
// The third stage: pieces of text to ids of a vocabulary.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text_table.h"
#include "tokenizer.h"

namespace bantam {

/// Highest id a vocabulary may have, so that a wrong number cannot ask for all memory.
inline constexpr int64_t kMostTokenId = (int64_t{1} << 24) - 1;

/// Whether a vocabulary of so many tokens may have this id: gaps are allowed within reason.
inline bool plausible_id(int64_t id, size_t tokens) {
  return id >= 0 && id <= kMostTokenId && static_cast<uint64_t>(id) <= 4 * uint64_t{tokens} + (1u << 18);
}

/// Tokens by id and by text.
class Vocabulary {
 public:
  enum class Twice { refused, last_counts };
  /// `tokens`: id -> text; an empty text is no token. What is there twice is found by its last id, or is an
  /// Error(model) naming `where`.
  Vocabulary(std::vector<std::string> tokens, const std::string& where, Twice twice = Twice::refused);
  /// -1: no such token.
  int32_t find(std::string_view text) const { return by_text_.find(text); }
  /// Empty for what is no token.
  const std::string& text(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  /// Highest id + 1.
  size_t size() const { return tokens_.size(); }
  size_t longest() const { return by_text_.longest(); }

 private:
  std::vector<std::string> tokens_;
  TextTable by_text_;
};

/// Immutable, safe in several threads.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  /// Appends the ids of one piece, which is not empty; returns how many of its bytes have no token: they are left out,
  /// or become the unknown token. With `spans`, also appends the bytes of the piece that each id stands for, ascending
  /// by begin; only bytes that are left out are in none.
  virtual size_t encode(std::string_view piece, std::vector<int32_t>& out,
                        std::vector<TextSpan>* spans = nullptr) const = 0;
  /// The model takes bytes, not text in the byte alphabet: pieces may be any bytes.
  virtual bool takes_bytes() const { return false; }
  /// Every text has tokens.
  virtual bool complete() const { return true; }
};

/// "<0x0A>": how vocabularies with byte fallback write a byte.
std::string byte_token(uint8_t byte);

}  // namespace bantam
