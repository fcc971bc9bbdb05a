// SPDX-License-Identifier: Apache-2.0
// Keys of other tools that are no key here: those without effect on a run here, and those that would change its result.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

struct ForeignKey {
  enum class Kind {
    no_effect,     ///< named in one line, the run goes on
    would_change,  ///< refused with the reason, unless its value switches it off
    renamed,       ///< refused with the key to use
  };
  Kind kind = Kind::no_effect;
  std::string pattern;  ///< a name, or a start of one with a final *
  std::string reason{};
  std::vector<std::string> harmless{};  ///< values beside false, none, 0, empty that switch it off
};

/// Null when no other tool is known to use the name.
const ForeignKey* find_foreign_key(std::string_view name);

/// `text` equals `pattern`, or starts with it where it ends in *.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace bantam
