// SPDX-License-Identifier: Apache-2.0
// A tokenised row as people read it: what is context, what is trained.
#pragma once
#include <span>
#include <string>

#include "../finetune/data/samples/sample_set.h"
#include "../finetune/text/tokenizer.h"

namespace bantam {

/// Runs of context and of trained tokens, a line each or several where the text has line feeds:
///   context | <|im_start|>user
///           | Why?<|im_end|>
///   trained | Because.<|im_end|>
/// A run whose loss has a weight of its own says so. `color`: trained text is green, context grey.
std::string row_text(const SampleView& sample, const Tokenizer& tokenizer, bool color);

/// A line per token: place, id, + where it is trained, its piece, what it stands for. `trained` may be empty: no mask.
std::string token_table(std::span<const int32_t> ids, std::span<const uint8_t> trained, const Tokenizer& tokenizer,
                        bool color);

/// Control characters as \n, \t, \u0007; all else as it is.
std::string visible(std::string_view text);

}  // namespace bantam
