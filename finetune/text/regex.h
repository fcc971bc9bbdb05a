// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer files, run by PCRE2.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "alignment.h"

namespace bantam {

/// A stretch of text: a match, or the gap between two matches.
struct Span {
  size_t begin = 0, end = 0;
  bool match = false;
};

/// A compiled expression. Immutable, safe in several threads; copies share the compiled code.
class Regex {
 public:
  /// `pattern` as tokenizer files write it (Oniguruma's dialect, Unicode classes). Error(model) naming `where` for what
  /// does not compile and for constructs that PCRE2 reads otherwise.
  Regex(const std::string& pattern, const std::string& where);
  /// An expression that matches `text` literally. Error(model) when it is empty.
  static Regex literal(const std::string& text, const std::string& where);

  /// Appends the matches in `text` (valid UTF-8) and the gaps between them, in order; empty matches too, gaps are never
  /// empty. Error(data) when the expression gives up on this text.
  void find(std::string_view text, std::vector<Span>& out) const;
  /// Appends matches and gaps as pieces; none is empty.
  void isolate(std::string_view text, std::vector<std::string_view>& out) const;
  /// Each match replaced by `content`; what changed is written to `edits`, if given.
  std::string replace(std::string_view text, std::string_view content, Edits* edits = nullptr) const;
  const std::string& pattern() const { return pattern_; }

 private:
  template <class Found>
  void scan(std::string_view text, Found&& found) const;

  std::string pattern_, where_;
  std::shared_ptr<const void> code_;  // pcre2_code
  bool jit_ = false;
};

}  // namespace bantam
