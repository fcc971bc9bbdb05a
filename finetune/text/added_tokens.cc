// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.h"

#include <algorithm>

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

// The last character of `s`, which is not empty; its length is 0 when it is not valid.
size_t last_character(std::string_view s, uint32_t* c) {
  size_t begin = s.size() - 1;
  while (begin > 0 && s.size() - begin < 4 && (static_cast<uint8_t>(s[begin]) & 0xC0) == 0x80) --begin;
  return utf8_sequence(s.substr(begin), c) == s.size() - begin ? s.size() - begin : 0;
}

size_t trailing_space(std::string_view s) {
  size_t end = s.size();
  for (uint32_t c = 0; end > 0;) {
    const size_t n = last_character(s.substr(0, end), &c);
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
  return !s.empty() && last_character(s, &c) > 0 && is_word(c);
}

}  // namespace

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

const AddedToken* AddedTokenFinder::longest_at(std::string_view text) const {
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (const char c : text) {
    const auto it = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(c));
    if (it == edges_.end()) break;
    node = it->second;
    if (ends_[node] >= 0) best = &tokens_[static_cast<size_t>(ends_[node])];
  }
  return best;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::cut(std::string_view text, bool parse_special) const {
  std::vector<Part> out;
  size_t plain = 0, at = 0;
  while (!tokens_.empty() && at < text.size()) {
    const AddedToken* token = first_[static_cast<uint8_t>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word && (word_at_end(text.substr(0, begin)) || word_at_start(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(plain, begin - trailing_space(text.substr(0, begin)));
    if (token->rstrip) end += leading_space(text.substr(end));
    if (begin > plain) out.push_back({text.substr(plain, begin - plain), -1});
    out.push_back({{}, token->id});
    plain = end;
  }
  if (plain < text.size()) out.push_back({text.substr(plain), -1});
  return out;
}

}  // namespace bantam
