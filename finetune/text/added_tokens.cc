// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {
namespace {

size_t leading_space(std::string_view s) {
  size_t at = 0;
  for (uint32_t c = 0; at < s.size();) {
    const size_t n = utf8_sequence(s.substr(at), &c);
    if (n == 0 || !is_white_space(c)) break;
    at += n;
  }
  return at;
}

size_t trailing_space(std::string_view s) {
  size_t end = s.size();
  for (uint32_t c = 0; end > 0;) {
    const size_t n = utf8_last(s.substr(0, end), &c);
    if (n == 0 || !is_white_space(c)) break;
    end -= n;
  }
  return s.size() - end;
}

bool word_at_start(std::string_view s) {
  uint32_t c = 0;
  return !s.empty() && utf8_sequence(s, &c) > 0 && is_word(c);
}

bool word_at_end(std::string_view s) {
  uint32_t c = 0;
  return !s.empty() && utf8_last(s, &c) > 0 && is_word(c);
}

}  // namespace

PlainSpans::PlainSpans(std::span<const TextSpan> spans) {
  for (const TextSpan s : spans) {
    if (s.end < s.begin || (!spans_.empty() && s.begin < spans_.back().begin)) {
      throw Error(ErrorCode::internal, str("plain spans: [", s.begin, ", ", s.end, ") is out of order"));
    }
    if (s.end == s.begin) continue;
    if (!spans_.empty() && s.begin <= spans_.back().end) {
      spans_.back().end = std::max(spans_.back().end, s.end);
    } else {
      spans_.push_back(s);
    }
  }
}

PlainSpans::Place PlainSpans::place(TextSpan token) const {
  // The first that ends behind the token's begin.
  const auto it = std::upper_bound(spans_.begin(), spans_.end(), token.begin,
                                   [](size_t at, const TextSpan& s) { return at < s.end; });
  if (it == spans_.end() || it->begin >= token.end) return Place::outside;
  return it->begin <= token.begin && token.end <= it->end ? Place::inside : Place::across;
}

void AddedTokenFinder::add(const AddedToken& token) {
  if (token.content.empty()) return;
  uint32_t node = 0;
  for (const char c : token.content) {
    const auto [it, fresh] =
        edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c), static_cast<uint32_t>(ends_.size()));
    if (fresh) ends_.push_back(-1);
    node = it->second;
  }
  first_[static_cast<uint8_t>(token.content[0])] = true;
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at, const Plain* plain) const {
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const auto it = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[end++]));
    if (it == edges_.end()) break;
    node = it->second;
    if (ends_[node] < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(ends_[node])];
    if (plain != nullptr && token.special && plain->place(at, end) == PlainSpans::Place::across) continue;
    best = &token;
  }
  return best;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::cut(std::string_view text, bool parse_special,
                                                          const Plain* plain) const {
  if (!parse_special || (plain != nullptr && plain->spans.empty())) plain = nullptr;
  std::vector<Part> out;
  size_t done = 0, at = 0;
  while (!tokens_.empty() && at < text.size()) {
    const AddedToken* token = first_[static_cast<uint8_t>(text[at])] ? longest_at(text, at, plain) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special &&
        (!parse_special || (plain != nullptr && plain->place(begin, end) != PlainSpans::Place::outside))) {
      continue;
    }
    if (token->single_word && (word_at_end(text.substr(0, begin)) || word_at_start(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(done, begin - trailing_space(text.substr(0, begin)));
    if (token->rstrip) end += leading_space(text.substr(end));
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
  return out;
}

}  // namespace bantam
