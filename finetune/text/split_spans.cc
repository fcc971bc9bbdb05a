// SPDX-License-Identifier: Apache-2.0
#include "split_spans.h"

#include <algorithm>
#include <iterator>

#include "unicode_scripts.h"

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

// -1: none.
int script_of(uint32_t c) {
  const auto* it = std::lower_bound(std::begin(kScripts), std::end(kScripts), c,
                                    [](const ScriptRange& r, uint32_t x) { return r.last < x; });
  return it != std::end(kScripts) && it->first <= c ? it->script : -1;
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

void find_scripts(std::string_view text, std::vector<Span>& out) {
  int before = -1;
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t n = utf8_sequence(text.substr(at), &c);
    const int script = script_of(c);
    if (at == 0 || (script >= 0 && script != before)) {
      out.push_back({at, at + n, script < 0});
    } else {
      out.back().end = at + n;
    }
    if (script >= 0) before = script;
    at += n;
  }
}

}  // namespace bantam
