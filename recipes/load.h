// SPDX-License-Identifier: Apache-2.0
// A recipe file and overrides to a Recipe. Overrides win over the file, the file over the defaults.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "recipe.h"

namespace bantam {

/// One setting from outside the file.
struct Override {
  std::string written;  ///< as messages name it: "--learning-rate", "lr=1e-4"
  std::string key;      ///< leaf, alias or section.leaf; - and _ are the same
  std::string value;
};

struct LoadedRecipe {
  Recipe recipe;                     ///< complete, checked, paths absolute
  std::vector<std::string> notices;  ///< what people should know: aliases, keys without effect, what was resolved
};

/// Reads `path` (empty: no file; output_dir then defaults to ./outputs/<model>-<data>), applies the overrides, checks
/// all. Error(usage) lists every problem, a line each: "file:line:column: key path: found X, expected Y"; also when
/// there is no such file. Error(io) when reading fails half-way. Looks at no other file.
LoadedRecipe load_recipe(const std::filesystem::path& path, const std::vector<Override>& overrides = {});

/// The same from text; `name` stands for the file in messages.
LoadedRecipe parse_recipe(std::string_view text, const std::string& name, const std::vector<Override>& overrides = {});

}  // namespace bantam
