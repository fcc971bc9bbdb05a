// SPDX-License-Identifier: Apache-2.0
// A first recipe for a model and a dataset.
#pragma once
#include <string>

#include "recipe.h"

namespace bantam {

/// A commented recipe that load_recipe reads: the keys that people change, each with its help. Paths are written as
/// given.
std::string init_recipe(const std::string& model, const std::string& data, Recipe::DatasetType type,
                        const std::string& recipe_name);

}  // namespace bantam
