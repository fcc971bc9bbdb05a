// SPDX-License-Identifier: Apache-2.0
// A template's text as tokens, with Jinja's rules of white space: trim_blocks and lstrip_blocks on,
// keep_trailing_newline off.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

enum class JinjaTokenKind : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  ///< text is what stands between the quotes, not yet unescaped
  integer,
  real,
  symbol,
  end,
};

struct JinjaToken {
  JinjaTokenKind kind;
  size_t at;  ///< offset in the source
  std::string_view text;
};

/// "\r\n" and "\r" become "\n", one line end at the end is dropped.
std::string jinja_normalize(std::string_view source);
/// Tokens that point into `source`, which is normalised; the last one is `end`.
std::vector<JinjaToken> jinja_tokens(std::string_view source);
/// What a literal's text means: Python's escapes. `at`: where it stands, for messages.
std::string jinja_unescape(std::string_view text, size_t at);

/// Error(model) with a place that the caller turns into line and column.
struct JinjaSyntaxError {
  size_t at;
  std::string message;
};

}  // namespace bantam
