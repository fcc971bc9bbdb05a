// SPDX-License-Identifier: Apache-2.0
// Unicode: normal forms, lower case and the classes of characters that tokenizers ask for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "alignment.h"

namespace bantam {

/// The four forms as HF tokenizers have them (Unicode 9), and NFC of a current Unicode, as Python's unicodedata has it.
enum class NormalForm { nfc, nfd, nfkc, nfkd, nfc_current };
/// `text` must be valid UTF-8. What changed is written to `edits`, if given.
std::string normalize(std::string_view text, NormalForm form, Edits* edits = nullptr);

bool is_white_space(uint32_t c);  ///< White_Space
bool is_word(uint32_t c);         ///< \w: alphabetic, marks, decimal digits, connectors, joiners
bool is_number(uint32_t c);       ///< general category N
bool is_punctuation(uint32_t c);  ///< ASCII punctuation and general category P, as HF tokenizers know it
bool is_mark(uint32_t c);         ///< general category M
bool is_accent(uint32_t c);       ///< a mark that HF tokenizers' StripAccents takes away
/// Appends the full lower case of one character, without context.
void append_lower(std::string& out, uint32_t c);

/// The length of the extended grapheme cluster at the start of `text`, which is not empty and valid UTF-8.
size_t grapheme_length(std::string_view text);

/// Each byte sequence that is not UTF-8 becomes U+FFFD, one for each longest start of a character (as in the WHATWG's
/// decoder, Python and Rust). What changed is written to `edits`, if given.
std::string replace_invalid(std::string_view text, Edits* edits = nullptr);

}  // namespace bantam
