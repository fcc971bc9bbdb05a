// SPDX-License-Identifier: Apache-2.0
// Where pieces come from, when pre-tokenizers made texts of their own.
#pragma once
#include <deque>
#include <string_view>
#include <vector>

#include "alignment.h"
#include "pre_tokenizer.h"

namespace bantam {

/// The text that pieces were cut from, and the texts that were made on the way. Refers to its arguments.
class PieceSources {
 public:
  PieceSources(std::string_view text, const Alignment& alignment, const Pieces& pieces);
  struct Place {
    const Alignment* alignment;
    size_t at;  ///< in the text that it describes
  };
  Place find(std::string_view piece) const;

 private:
  struct Source {
    std::string_view text;
    const Alignment* alignment;
  };
  std::deque<Alignment> made_;
  std::vector<Source> sources_;  // in order of their addresses
};

}  // namespace bantam
