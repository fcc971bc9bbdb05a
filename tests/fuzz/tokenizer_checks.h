// SPDX-License-Identifier: Apache-2.0
// What holds for a tokenizer of any file that could be read, and for a file that could not.
#pragma once
#include <cstdlib>
#include <memory>
#include <string_view>

#include "finetune/text/tokenizer.h"
#include "kernels/error.h"

namespace bantam::fuzz {

inline const char* const kTexts[] = {"",
                                     " ",
                                     "the river  runs",
                                     "<s>the</s> <tool> word",
                                     "e\xCC\x81 \xEF\xAC\x81 A\xCC\x8A",
                                     "\xE4\xBD\xA0\xE5\xA5\xBD 12 345",
                                     "bad \xFF\xC0\xE2\x82",
                                     "\xE2\x96\x81\xE2\x96\x81the\n\n\t",
                                     "\xF0\x9F\x98\x80\xE2\x80\x8D\xF0\x9F\x91\xA9",
                                     "Caf\xC3\xA9X day-- --"};

inline void check_spans(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const auto e = tokenizer.encode_with_spans(text, options);
  if (e.ids != tokenizer.encode(text, options) || e.spans.size() != e.ids.size()) std::abort();
  for (size_t i = 0; i < e.spans.size(); ++i) {
    const auto [begin, end] = e.spans[i];
    if (begin > end || end > text.size() || (i > 0 && begin < e.spans[i - 1].begin)) std::abort();
  }
}

inline void check_tokenizer(const Tokenizer& tokenizer) {
  for (const char* text : kTexts) {
    for (const bool parse : {false, true}) {
      try {
        const auto ids = tokenizer.encode(text, {.parse_special = parse});
        for (const int32_t id : ids) {
          if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
        }
        tokenizer.decode(ids, parse);
        check_spans(tokenizer, text, {.parse_special = parse});
        const TextSpan plain[] = {{1, 3}, {4, 9}};
        check_spans(tokenizer, text, {.parse_special = parse, .plain = plain});
      } catch (const Error& e) {
        if (e.code() != ErrorCode::data && e.code() != ErrorCode::model) std::abort();
      }
    }
    tokenizer.unencodable(text);
  }
}

/// What came of it: 1 a tokenizer, 0 an Error. Anything else ends the program.
template <class Load>
int try_tokenizer(const Load& load) {
  try {
    const std::shared_ptr<const Tokenizer> tokenizer = load();
    check_tokenizer(*tokenizer);
    return 1;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::model && e.code() != ErrorCode::data) std::abort();
    return 0;
  }
}

}  // namespace bantam::fuzz
