// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text as they stand, before any splitting: control tokens and tokens added later.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bantam {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false, rstrip = false;  ///< takes the white space on that side with it
  bool normalized = false;              ///< looked for in the normalised text
  bool single_word = false;             ///< only where no word character is beside it
};

/// Finds, from left to right, the longest token that starts at each place, as HF tokenizers do: what is found and then
/// not wanted (a control token, half a word) stays text as a whole.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  struct Part {
    std::string_view text;  ///< plain text, when id < 0
    int32_t id = -1;
  };
  /// Cuts `text` into plain parts and tokens; white space that a token strips belongs to it. Control tokens are text
  /// unless `parse_special`.
  std::vector<Part> cut(std::string_view text, bool parse_special) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> first_{};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> ends_{-1};                 // node -> index of the token that ends there
};

}  // namespace bantam
