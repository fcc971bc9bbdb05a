// SPDX-License-Identifier: Apache-2.0
// Unigram language model: of all ways to cut a piece into tokens, the one of the highest score.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "text_model.h"

namespace bantam {

struct UnigramParts {
  std::string where;                ///< file, for messages
  std::vector<std::string> tokens;  ///< id -> text; the last of equal texts counts
  std::vector<double> scores;       ///< as many
  int32_t unk = -1;                 ///< for what has no token; -1: such text is an Error(data)
  std::vector<int32_t> controls;    ///< tokens that no text makes
  bool byte_fallback = false;       ///< what has no token becomes <0xNN> tokens, when all of them are there
};

class UnigramModel final : public TextModel {
 public:
  /// Error(model) for scores that are no numbers or an unk that is no token.
  explicit UnigramModel(UnigramParts parts);
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool complete() const override { return complete_; }
  /// As HF tokenizers: sums in double from the left, the first of equal scores counts, unknown neighbours are one.
  size_t encode(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const override;

 private:
  size_t append_unknown(std::string_view piece, TextSpan at, std::vector<int32_t>& out,
                        std::vector<TextSpan>* spans) const;

  std::string where_;
  Vocabulary vocabulary_;
  std::vector<double> scores_;
  int32_t unk_;
  double unk_score_ = 0;
  bool falls_back_, complete_ = false;
  std::array<int32_t, 256> byte_ids_{};
  // Tokens as a tree of bytes: the edges of a node are sorted by byte and stand together.
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  struct Node {
    uint32_t first = 0, edges = 0;
    int32_t id = -1;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  void build_tree(const std::vector<std::string>& tokens, const std::vector<int32_t>& controls);
  const Node* step(const Node& node, uint8_t byte) const;
};

}  // namespace bantam
