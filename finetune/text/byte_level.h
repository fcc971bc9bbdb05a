// SPDX-License-Identifier: Apache-2.0
// The alphabet in which byte-level vocabularies are written: each byte is one visible character (GPT-2's table).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "alignment.h"

namespace bantam {

std::string bytes_to_alphabet(std::string_view bytes);
/// Which byte each character of `made` = bytes_to_alphabet(bytes) stands for.
void alphabet_edits(std::string_view bytes, std::string_view made, Edits& edits);
/// None when a character is not of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace bantam
