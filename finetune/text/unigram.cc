// SPDX-License-Identifier: Apache-2.0
#include "unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(UnigramParts parts)
    : where_(std::move(parts.where)),
      vocabulary_(parts.tokens, where_, Vocabulary::Twice::last_counts),
      scores_(std::move(parts.scores)),
      unk_(parts.unk),
      falls_back_(parts.byte_fallback) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (!std::isfinite(scores_[i]))
      throw Error(ErrorCode::model, str(where_, ": model.vocab[", i, "]: score ", scores_[i]));
    least = std::min(least, scores_[i]);
  }
  unk_score_ = least - kUnknownPenalty;
  if (unk_ >= 0 && static_cast<size_t>(unk_) >= vocabulary_.size()) {
    throw Error(ErrorCode::model,
                str(where_, ": model.unk_id is ", unk_, ", the vocabulary has ", vocabulary_.size(), " tokens"));
  }
  for (size_t b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.find(byte_token(static_cast<uint8_t>(b)));
  complete_ = falls_back_ && std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
  build_tree(parts.tokens, parts.controls);
}

// Tokens in order of their bytes, so that each node's edges are made in order too; the path to the token before is
// kept.
void UnigramModel::build_tree(const std::vector<std::string>& tokens, const std::vector<int32_t>& controls) {
  std::vector<uint32_t> order(tokens.size()), path{0};
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return tokens[a] < tokens[b]; });
  std::vector<std::pair<uint32_t, Edge>> made;
  nodes_.assign(1, {});
  std::string_view before;
  std::vector<bool> control(tokens.size());
  for (const int32_t id : controls) {
    if (id >= 0 && static_cast<size_t>(id) < control.size()) control[static_cast<size_t>(id)] = true;
  }
  for (const uint32_t i : order) {
    const std::string_view text = tokens[i];
    if (text.empty() || (control[i] && utf8_sequence(text) < text.size())) continue;
    size_t same = 0;
    while (same < before.size() && same < text.size() && before[same] == text[same]) ++same;
    path.resize(same + 1);
    for (size_t k = same; k < text.size(); ++k) {
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      made.push_back({path.back(), {static_cast<uint8_t>(text[k]), node}});
      path.push_back(node);
    }
    nodes_[path.back()].id = vocabulary_.find(text);
    before = text;
  }
  std::stable_sort(made.begin(), made.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  edges_.reserve(made.size());
  for (const auto& [node, edge] : made) {
    if (nodes_[node].edges++ == 0) nodes_[node].first = static_cast<uint32_t>(edges_.size());
    edges_.push_back(edge);
  }
}

const UnigramModel::Node* UnigramModel::step(const Node& node, uint8_t byte) const {
  const Edge* const first = edges_.data() + node.first;
  const Edge* const last = first + node.edges;
  const Edge* const it = std::lower_bound(first, last, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return it == last || it->byte != byte ? nullptr : &nodes_[it->node];
}

size_t UnigramModel::encode(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const {
  struct Best {
    double score = 0;
    size_t from = std::string_view::npos;
    int32_t id = -1;
  };
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](size_t from, size_t to, int32_t id, double score) {
    Best& b = best[to];
    if (b.from == std::string_view::npos || score > b.score) b = {score, from, id};
  };
  for (size_t at = 0; at < piece.size();) {
    const double here = best[at].score;
    const size_t character = utf8_sequence(piece.substr(at));
    bool alone = false;  // the character itself is a token
    const Node* node = nodes_.data();
    for (size_t end = at; end < piece.size();) {
      node = step(*node, static_cast<uint8_t>(piece[end++]));
      if (node == nullptr) break;
      if (node->id < 0) continue;
      offer(at, end, node->id, scores_[static_cast<size_t>(node->id)] + here);
      alone = alone || end - at == character;
    }
    if (!alone) {
      if (unk_ < 0) {
        throw Error(ErrorCode::data, str(where_, ": no token for '", printable(piece.substr(at, character)),
                                         "', and the model names none for unknown text"));
      }
      offer(at, at + character, unk_, unk_score_ + here);
    }
    at += character;
  }
  // Back along the best path; stretches of the unknown token are one.
  std::vector<TextSpan> cuts;
  bool after_unknown = false;
  for (size_t end = piece.size(); end > 0; end = best[end].from) {
    const bool is_unknown = unk_ >= 0 && best[end].id == unk_;
    if (is_unknown && after_unknown) {
      cuts.back().begin = best[end].from;
    } else {
      cuts.push_back({best[end].from, end});
    }
    after_unknown = is_unknown;
  }
  size_t lost = 0;
  for (size_t i = cuts.size(); i-- > 0;) {
    const std::string_view text = piece.substr(cuts[i].begin, cuts[i].end - cuts[i].begin);
    const Node* node = nodes_.data();
    for (size_t k = 0; k < text.size() && node != nullptr; ++k) node = step(*node, static_cast<uint8_t>(text[k]));
    if (node != nullptr && node->id >= 0) {
      out.push_back(node->id);
      if (spans != nullptr) spans->push_back(cuts[i]);
    } else {
      lost += append_unknown(piece, cuts[i], out, spans);
    }
  }
  return lost;
}

size_t UnigramModel::append_unknown(std::string_view piece, TextSpan at, std::vector<int32_t>& out,
                                    std::vector<TextSpan>* spans) const {
  const std::string_view text = piece.substr(at.begin, at.end - at.begin);
  const auto id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (!falls_back_ || std::any_of(text.begin(), text.end(), [&](char c) { return id(c) < 0; })) {
    out.push_back(unk_);
    if (spans != nullptr) spans->push_back(at);
    return text.size();
  }
  for (const char c : text) out.push_back(id(c));
  for (size_t i = at.begin; spans != nullptr && i < at.end; ++i) spans->push_back({i, i + 1});
  return 0;
}

}  // namespace bantam
