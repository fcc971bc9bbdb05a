// SPDX-License-Identifier: Apache-2.0
// The few fields of sentencepiece_model.proto that are needed to write a model, and to look at one before the library
// gets it (the library trusts the tables inside).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

struct SentencePieceEntry {
  std::string piece;
  float score = 0;
  int32_t type = 1;  ///< NORMAL 1, UNKNOWN 2, CONTROL 3, USER_DEFINED 4, UNUSED 5, BYTE 6
};

struct SentencePieceModel {
  std::vector<SentencePieceEntry> pieces;
  int32_t unk = 0, bos = -1, eos = -1;
  bool byte_fallback = false, add_dummy_prefix = true, remove_extra_whitespaces = false;
};

/// A serialised ModelProto of type BPE.
std::string write_sentencepiece_model(const SentencePieceModel& model);

struct SentencePieceSettings {
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool space_as_suffix = false;  ///< treat_whitespace_as_suffix
};
/// Error(model) naming `where` for bytes that are no ModelProto, or whose normalisation table leads outside itself.
SentencePieceSettings check_sentencepiece_model(std::string_view bytes, const std::string& where);

/// The same model with add_dummy_prefix off: a later field of a message wins.
std::string without_dummy_prefix(std::string_view bytes);

}  // namespace bantam
