// SPDX-License-Identifier: Apache-2.0
// What a recipe says about files, held against the files: they exist, and what `type: auto` means for each dataset.
#pragma once
#include <string>
#include <vector>

#include "recipe.h"

namespace bantam {

/// From the fields of the first row. Error(data) when there is none, or its fields are those of no type; names them.
DatasetType detect_dataset_type(const Recipe::Dataset& dataset);

/// Checks that the model, the datasets and the chat template exist and replaces each automatic type. Returns a line for
/// each type that was told from the data. Error(model), Error(data).
std::vector<std::string> check_files(Recipe& recipe);

}  // namespace bantam
