// SPDX-License-Identifier: Apache-2.0
// SentencePiece's table of character replacements, as tokenizer.json carries it.
#pragma once
#include <memory>
#include <string>

#include "normalizer.h"

namespace bantam {

/// `charsmap` in base64. Error(model) naming `at` for what is not such a table.
std::unique_ptr<Normalizer> read_precompiled(const std::string& charsmap, const std::string& at);

}  // namespace bantam
