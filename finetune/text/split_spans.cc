// SPDX-License-Identifier: Apache-2.0
#include "split_spans.h"

#include <algorithm>

namespace bantam {
namespace {

// A match that follows a gap (in the order of reading) joins the piece before it; `join` makes one span of two.
template <class Join>
void merge_matches(std::vector<Span>& spans, Join join) {
  size_t kept = 0;
  bool previous = false;
  for (const Span s : spans) {
    if (s.match && !previous && kept > 0) {
      join(spans[kept - 1], s);
    } else {
      spans[kept++] = s;
    }
    previous = s.match;
  }
  spans.resize(kept);
}

}  // namespace

void apply_behavior(std::vector<Span>& spans, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return;
    case SplitBehavior::removed:
      spans.erase(std::remove_if(spans.begin(), spans.end(), [](const Span& s) { return s.match; }), spans.end());
      return;
    case SplitBehavior::merged_with_previous:
      return merge_matches(spans, [](Span& into, const Span& s) { into.end = s.end; });
    case SplitBehavior::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      merge_matches(spans, [](Span& into, const Span& s) { into.begin = s.begin; });
      std::reverse(spans.begin(), spans.end());
      return;
    case SplitBehavior::contiguous: {
      size_t kept = 0;
      bool previous = false;
      for (const Span s : spans) {
        if (s.match == previous && kept > 0) {
          spans[kept - 1].end = s.end;
        } else {
          spans[kept++] = s;
        }
        previous = s.match;
      }
      spans.resize(kept);
      return;
    }
  }
}

void find_words(std::string_view text, std::vector<Span>& out) {
  enum class Kind { none, word, space, other };
  Kind kind = Kind::none;
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t n = utf8_sequence(text.substr(at), &c);
    const Kind next = is_word(c) ? Kind::word : is_white_space(c) ? Kind::space : Kind::other;
    if (next == kind) {
      out.back().end = at + n;
    } else {
      out.push_back({at, at + n, next == Kind::space});
    }
    kind = next;
    at += n;
  }
}

}  // namespace bantam
