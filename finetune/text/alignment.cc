// SPDX-License-Identifier: Apache-2.0
#include "alignment.h"

#include <algorithm>

#include "utf8.h"

namespace bantam {

void Edits::put(size_t begin, size_t end, size_t length, TextSpan from) {
  if (end == begin && length == 0) return;
  // Where `begin` is behind the step: as far from the edit before as it was.
  const size_t now = list_.empty() ? begin : list_.back().end + (begin - list_.back().next);
  list_.push_back({now, now + length, end, from});
}

void Edits::insert_front(std::string_view text, size_t length) {
  insert(0, length, {0, utf8_sequence(text)});
}

void Edits::insert_back(std::string_view text, size_t length) {
  insert(text.size(), length, {text.size() - utf8_last(text), text.size()});
}

TextSpan Edits::source(TextSpan now) const {
  auto it =
      std::upper_bound(list_.begin(), list_.end(), now.begin, [](size_t at, const Edit& e) { return at < e.begin; });
  TextSpan out;
  // The last edit that begins at `at` or before it is the one before `it`.
  const auto before = [&](size_t at) { return it == list_.begin() || at >= std::prev(it)->end; };
  const auto unchanged = [&](size_t at) {
    return it == list_.begin() ? at : at - std::prev(it)->end + std::prev(it)->next;
  };
  out.begin = before(now.begin) ? unchanged(now.begin) : std::prev(it)->from.begin;
  const size_t last = now.end - 1;
  while (it != list_.end() && it->begin <= last) ++it;
  out.end = before(last) ? unchanged(last) + 1 : std::prev(it)->from.end;
  return out;
}

TextSpan Alignment::source(TextSpan now) const {
  for (const Alignment* a = this; a != nullptr; a = a->below_) {
    for (size_t i = a->steps_.size(); i-- > 0;) now = a->steps_[i].source(now);
    now = {now.begin + a->offset_, now.end + a->offset_};
  }
  return now;
}

std::optional<size_t> Alignment::shift() const {
  size_t sum = 0;
  for (const Alignment* a = this; a != nullptr; a = a->below_) {
    if (!a->steps_.empty()) return std::nullopt;
    sum += a->offset_;
  }
  return sum;
}

}  // namespace bantam
