// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text as they stand, before any splitting: control tokens and tokens added later.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "alignment.h"
#include "tokenizer.h"

namespace bantam {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false, rstrip = false;  ///< takes the white space on that side with it
  bool normalized = false;              ///< looked for in the normalised text
  bool single_word = false;             ///< only where no word character is beside it
};

/// The stretches of a text in which control tokens are plain text.
class PlainSpans {
 public:
  /// Stretches that touch count as one. Error(internal) when they are not in ascending order.
  explicit PlainSpans(std::span<const TextSpan> spans);
  bool empty() const { return spans_.empty(); }

  enum class Place { outside, inside, across };
  Place place(TextSpan token) const;

 private:
  std::vector<TextSpan> spans_;
};

/// Finds, from left to right, the longest token that starts at each place, as HF tokenizers do: what is found and then
/// not wanted (a control token, half a word) stays text as a whole.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  struct Part {
    std::string_view text;  ///< plain text when id < 0, else what the token takes
    int32_t id = -1;
  };
  /// Where control tokens are text, in the text that `alignment` leads back to.
  struct Plain {
    const PlainSpans& spans;
    const Alignment& alignment;
    PlainSpans::Place place(size_t begin, size_t end) const { return spans.place(alignment.source({begin, end})); }
  };
  /// Cuts `text` into plain parts and tokens; white space that a token strips belongs to it. Control tokens are text
  /// unless `parse_special`, and where `plain` says so: those inside a plain span stay text as a whole, those that lie
  /// across one of its ends are passed over for shorter ones.
  std::vector<Part> cut(std::string_view text, bool parse_special, const Plain* plain = nullptr) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at, const Plain* plain) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> first_{};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> ends_{-1};                 // node -> index of the token that ends there
};

}  // namespace bantam
