// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.h"

#include "utf8.h"

namespace bantam {
namespace {

bool white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t leading_space(std::string_view s) {
  size_t at = 0;
  for (uint32_t c = 0; at < s.size();) {
    const size_t n = utf8_sequence(s.substr(at), &c);
    if (n == 0 || !white_space(c)) break;
    at += n;
  }
  return at;
}

size_t trailing_space(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(s[begin]) & 0xC0) == 0x80) --begin;
    uint32_t c = 0;
    if (utf8_sequence(s.substr(begin, end - begin), &c) != end - begin || !white_space(c)) break;
    end = begin;
  }
  return s.size() - end;
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

std::vector<AddedTokenFinder::Part> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<Part> out;
  size_t plain = 0, at = 0;
  while (!tokens_.empty() && at < text.size()) {
    const AddedToken* token = first_[static_cast<uint8_t>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(plain, at - plain);
    if (token->lstrip) before.remove_suffix(trailing_space(before));
    if (!before.empty()) out.push_back({before, -1});
    out.push_back({{}, token->id});
    at += token->content.size();
    if (token->rstrip) at += leading_space(text.substr(at));
    plain = at;
  }
  if (plain < text.size()) out.push_back({text.substr(plain), -1});
  return out;
}

}  // namespace bantam
