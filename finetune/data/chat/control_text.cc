// SPDX-License-Identifier: Apache-2.0
#include "control_text.h"

#include <algorithm>

namespace bantam {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

ControlText::ControlText(std::vector<std::string> tokens) {
  struct Node {
    uint32_t parent;
    char byte;
  };
  std::vector<Node> nodes{{0, 0}};
  std::vector<uint32_t> depth{0};
  longest_ = {0};
  for (std::string& token : tokens) {
    if (token.empty() || tokens_.contains(token)) continue;
    first_[static_cast<uint8_t>(token[0])] = true;
    uint32_t node = 0;
    for (const char c : token) {
      const auto [at, added] = edges_.try_emplace(edge(node, c), static_cast<uint32_t>(nodes.size()));
      if (added) {
        nodes.push_back({node, c});
        depth.push_back(depth[node] + 1);
        longest_.push_back(0);
      }
      node = at->second;
    }
    longest_[node] = static_cast<uint32_t>(token.size());
    lengths_.push_back(token.size());
    tokens_.insert(std::move(token));
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());

  std::vector<uint32_t> order(nodes.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return depth[a] < depth[b]; });
  fail_.assign(nodes.size(), 0);
  for (const uint32_t node : order) {
    if (depth[node] < 2) continue;
    uint32_t at = fail_[nodes[node].parent];
    for (;;) {
      const auto found = edges_.find(edge(at, nodes[node].byte));
      if (found != edges_.end()) {
        fail_[node] = found->second;
        break;
      }
      if (at == 0) break;
      at = fail_[at];
    }
    longest_[node] = std::max(longest_[node], longest_[fail_[node]]);
  }
}

bool ControlText::next(std::string_view text, size_t from, std::vector<TextSpan>* spans) const {
  uint32_t node = 0;
  bool found = false;
  for (size_t i = from; i < text.size(); ++i) {
    if (node == 0) {
      while (i < text.size() && !first_[static_cast<uint8_t>(text[i])]) ++i;
      if (i == text.size()) break;
    }
    for (;;) {
      const auto to = edges_.find(edge(node, text[i]));
      if (to != edges_.end()) {
        node = to->second;
        break;
      }
      if (node == 0) break;
      node = fail_[node];
    }
    if (longest_[node] == 0) continue;
    found = true;
    if (spans == nullptr) return true;
    TextSpan span{i + 1 - longest_[node], i + 1};
    while (!spans->empty() && spans->back().end > span.begin) {
      span.begin = std::min(span.begin, spans->back().begin);
      spans->pop_back();
    }
    spans->push_back(span);
  }
  return found;
}

std::vector<TextSpan> ControlText::find(std::string_view text) const {
  std::vector<TextSpan> out;
  next(text, 0, &out);
  return out;
}

size_t ControlText::starts(std::string_view text) const {
  if (text.empty() || !first_[static_cast<uint8_t>(text[0])]) return 0;
  for (const size_t n : lengths_)
    if (n <= text.size() && tokens_.contains(text.substr(0, n))) return n;
  return 0;
}

size_t ControlText::ends(std::string_view text) const {
  for (const size_t n : lengths_)
    if (n <= text.size() && tokens_.contains(text.substr(text.size() - n))) return n;
  return 0;
}

}  // namespace bantam
