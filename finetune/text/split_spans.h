// SPDX-License-Identifier: Apache-2.0
// Matches and gaps within a piece of text, and which of them become pieces.
#pragma once
#include <string_view>
#include <vector>

#include "pre_tokenizer.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {

/// Turns matches and gaps into the pieces to keep, as HF tokenizers' SplitDelimiterBehavior does.
void apply_behavior(std::vector<Span>& spans, SplitBehavior behavior);

/// Each character for which is(c) holds is a match.
template <class Is>
void find_characters(std::string_view text, Is is, std::vector<Span>& out) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t n = utf8_sequence(text.substr(at), &c);
    if (is(c)) {
      if (at > done) out.push_back({done, at, false});
      out.push_back({at, at + n, true});
      done = at + n;
    }
    at += n;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

/// Runs of word characters, and runs of what is neither word nor white space, are gaps; white space is a match.
void find_words(std::string_view text, std::vector<Span>& out);

/// Runs of one script are gaps; spaces and characters of no known script go with the run before, and are a match at the
/// start of the text. As HF tokenizers' UnicodeScripts does, where all of Japanese is one script.
void find_scripts(std::string_view text, std::vector<Span>& out);

}  // namespace bantam
