// SPDX-License-Identifier: Apache-2.0
// What a recipe says about files, held against the files: they exist, and what `type: auto` means for each dataset.
#pragma once
#include <string>

#include "recipe.h"

namespace bantam {

/// From the fields of the first row of a JSONL file. Error(data) when the file has no row, its first row is no object,
/// or its fields are those of no type that can be read; names the fields.
Recipe::DatasetType detect_dataset_type(const Recipe::Dataset& dataset);

/// Checks that the model and the datasets exist and replaces each automatic type. Error(model), Error(data).
void check_files(Recipe& recipe);

}  // namespace bantam
