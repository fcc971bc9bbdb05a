// SPDX-License-Identifier: Apache-2.0
// Byte-level byte pair encoding (GPT-2, Llama 3, Qwen, SmolLM ...). Every text has an encoding: bytes that are not
// UTF-8 stay bytes, and are words of their own.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "added_tokens.h"
#include "split_rule.h"
#include "tokenizer.h"

namespace bantam {

/// A byte-level vocabulary with its rules, from whatever file.
struct BpeParts {
  std::string where;  ///< file, for messages
  std::vector<std::string>
      tokens;  ///< id -> text as in the file (byte alphabet); empty: no such id in the model's part
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  std::vector<AddedToken> added;
  std::vector<std::string> patterns;  ///< split rules in order; the same as in `pretokenizer`, for writing them
  Pretokenizer pretokenizer;
  bool nfc = false;            ///< normalise text to NFC first
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
  bool fuse_unk = false;
  int32_t unk = -1;                     ///< for bytes without a token; -1: they give nothing (see unencodable())
  std::vector<int32_t> prefix, suffix;  ///< what add_special puts around the text
  int32_t bos = -1, eos = -1;
  std::vector<std::pair<std::string, std::string>> files;
};

/// Highest id a vocabulary may have, so that a wrong number cannot ask for all memory.
inline constexpr int64_t kMostTokenId = (int64_t{1} << 24) - 1;

/// Checks the parts: Error(model) for merges that name unknown tokens, an empty merge table, ids with two texts.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts);

/// "a b" -> {a, b}; Error(model) naming `where` and the index otherwise.
std::pair<std::string, std::string> split_merge(std::string_view merge, size_t index, const std::string& where);

}  // namespace bantam
