// SPDX-License-Identifier: Apache-2.0
// The one table of the keys of a dataset in a recipe: reading, writing, the schema and help derive from it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "recipe.h"

namespace bantam {

struct DatasetKey {
  std::string name;
  std::vector<std::string> aliases;
  std::string Recipe::Dataset::*
      text;  ///< null: a key that is not a field's name (path, type, weight, sample_by, roles)
  std::string help;
  std::vector<DatasetType> read_by;  ///< types that read it; empty: all
};

/// In the order in which they are written.
const std::vector<DatasetKey>& dataset_keys();
/// By its name or an alias; null: unknown.
const DatasetKey* find_dataset_key(std::string_view name);

/// Keys of other tools that can stand in a dataset, with what to do; empty: not one of them.
std::string foreign_dataset_key(std::string_view name);

/// Names of `sample_by`, by SampleBy.
const std::vector<std::string>& sample_by_names();

/// A name for what a dataset's path stands for, to be part of a folder's name: without folders, endings and pattern
/// characters; that of the folder where nothing is left.
std::string data_name(const std::string& path);

/// As YAML: {path: ..., type: ..., and what differs from the default}.
std::string dataset_text(const Recipe::Dataset& dataset);

}  // namespace bantam
