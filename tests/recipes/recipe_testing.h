// SPDX-License-Identifier: Apache-2.0
// What the recipe tests share: a short way to a Recipe, and to the text of its errors.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "recipes/load.h"

namespace bantam {

/// A complete recipe; tests append to it. Four lines, so that theirs start on line 5.
inline const std::string kBase = "base_model: m\ndatasets: [d.jsonl]\noutput_dir: out\n\n";

inline LoadedRecipe load_text(const std::string& more, const std::vector<Override>& overrides = {}) {
  return parse_recipe(kBase + more, "r.yaml", overrides);
}
inline Recipe recipe_of(const std::string& more, const std::vector<Override>& overrides = {}) {
  return load_text(more, overrides).recipe;
}
/// The message of the Error(usage) that the text earns; "no error" without one.
inline std::string error_of(const std::string& more, const std::vector<Override>& overrides = {}) {
  try {
    load_text(more, overrides);
  } catch (const Error& e) {
    return e.code() == ErrorCode::usage ? e.what() : "wrong code";
  }
  return "no error";
}
inline bool has_notice(const LoadedRecipe& loaded, const std::string& part) {
  return std::any_of(loaded.notices.begin(), loaded.notices.end(),
                     [&](const std::string& notice) { return notice.find(part) != std::string::npos; });
}

}  // namespace bantam
