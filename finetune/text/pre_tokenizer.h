// SPDX-License-Identifier: Apache-2.0
// The second stage of tokenizer.json: normalised text to pieces, each of which the model encodes on its own.
#pragma once
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "alignment.h"
#include "regex.h"

namespace bantam {

/// Pieces of one text, in order; views into it or into texts that steps made.
struct Pieces {
  std::vector<std::string_view> list;
  bool at_start = false;  ///< list[0] stands at the very start of the whole text
  bool traced = false;    ///< steps write down what they change

  struct Made {
    std::string text;
    std::string_view source;  ///< the piece that it was made of
    Edits edits;              ///< when traced
  };
  std::deque<Made> store;
  Made& make(std::string_view source) { return store.emplace_back(Made{{}, source, {}}); }
};

/// What becomes of the matches of a pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One step. Immutable, safe in several threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts the pieces further, and may change them; no piece is empty, before and after.
  virtual void apply(Pieces& pieces) const = 0;
};

/// The steps one after the other.
class PreTokenizers {
 public:
  void add(std::unique_ptr<PreTokenizer> step) { steps_.push_back(std::move(step)); }
  void apply(Pieces& pieces) const {
    for (const auto& step : steps_) step->apply(pieces);
  }
  /// The last step writes bytes in the byte alphabet; the steps leave this out, and the model takes the bytes
  /// themselves.
  bool ends_in_bytes = false;

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

/// Matches of `regex` are pieces, and so are the gaps.
std::unique_ptr<PreTokenizer> make_isolated_split(Regex regex);
/// The "pre_tokenizer" of a tokenizer.json (null: none). With `bytes`, a ByteLevel at the end is done by the model.
/// Error(model) naming `where`, the place within and the part that is not known.
PreTokenizers read_pre_tokenizer(const nlohmann::json* j, bool bytes, const std::string& where);

}  // namespace bantam
