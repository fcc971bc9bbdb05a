// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding, over characters (SentencePiece's kind) or over bytes (GPT-2's kind).
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bpe_merges.h"
#include "text_model.h"

namespace bantam {

/// A vocabulary with its merges and options, from whatever file.
struct BpeParts {
  std::string where;                ///< file, for messages
  std::vector<std::string> tokens;  ///< id -> text as in the file; empty: no such id in the model's part
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  std::optional<BpeMerges> table;                           ///< instead of `merges`: by id
  bool bytes = false;             ///< tokens are written in the byte alphabet, and pieces come as plain bytes
  bool ignore_merges = false;     ///< a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;     ///< a character without a token becomes <0xNN> tokens
  bool fuse_unk = false;          ///< neighbouring unknown characters are one unknown token
  int32_t unk = -1;               ///< for characters without a token; -1: they are left out
  std::vector<int32_t> controls;  ///< tokens that no text makes, whatever the merges say
  std::string word_prefix;        ///< continuing_subword_prefix: what all characters but a piece's first get
  std::string word_suffix;        ///< end_of_word_suffix: what the last character of a piece gets
};

class BpeModel final : public TextModel {
 public:
  /// Checks the parts: Error(model) for merges that name unknown tokens, and ids with two texts.
  explicit BpeModel(BpeParts parts);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  size_t encode(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const override;
  bool takes_bytes() const override { return bytes_; }
  bool complete() const override { return complete_; }

 private:
  void read_bytes();
  void read_byte_fallback();
  void read_merges(const std::vector<std::pair<std::string, std::string>>& merges);
  bool is_control(int32_t id) const { return whole_[static_cast<size_t>(id)] == never; }
  void find_word_starts(const std::vector<std::pair<std::string, std::string>>& merges);
  // With spans, or without (where the pointer is not looked at).
  template <bool with_spans>
  size_t encode_piece(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const;
  // `at`: where the word stands in the piece.
  template <bool with_spans>
  size_t encode_word(std::string_view word, size_t at, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const;
  size_t append_bytes(std::string_view word, size_t at, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const;
  size_t append_characters(std::string_view word, size_t at, std::vector<int32_t>& out,
                           std::vector<TextSpan>* spans) const;
  bool append_fallback(std::string_view text, std::vector<int32_t>& out) const;

  std::string where_;
  Vocabulary vocabulary_;
  BpeMerges merges_;
  bool bytes_, ignore_merges_, fuse_unk_, complete_ = true;
  bool space_starts_word_ = false;  // no merge joins a character and the sign for a space behind it
  int32_t unk_;
  std::string word_prefix_, word_suffix_;
  std::array<int32_t, 256> byte_ids_{};  // of single bytes, or of <0xNN>
  TextTable words_;                      // with `bytes`: tokens by the bytes that they stand for
  // What merging the text of a token gives: not tried yet, the token itself, something else; or no text makes the
  // token.
  enum Whole : uint8_t { unknown, yes, no, never };
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

/// "a b" -> {a, b}; Error(model) naming `where` and the index otherwise.
std::pair<std::string, std::string> split_merge(std::string_view merge, size_t index, const std::string& where);

}  // namespace bantam
