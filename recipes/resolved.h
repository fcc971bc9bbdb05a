// SPDX-License-Identifier: Apache-2.0
// A Recipe as text, and what two recipes differ in: for the run's folder and for resume.
#pragma once
#include <string>
#include <vector>

#include "key_table.h"

namespace bantam {

/// Every key with its value, in sections; load_recipe reads an equal Recipe back. `comment`: a first line, may be
/// empty.
std::string to_yaml(const Recipe& recipe, const std::string& comment = {});

/// 16 hex digits over the keys that change results: equal recipes give equal runs.
std::string recipe_fingerprint(const Recipe& recipe);

/// The same over those that may not change when a run goes on: what a checkpoint must agree with, --resume or not.
std::string recipe_run_key(const Recipe& recipe);

struct RecipeDifference {
  std::string key;            ///< "training.learning_rate"
  std::string before, after;  ///< as YAML
  bool changes_results = false;
  Resume resume = Resume::never;
};
/// In the order of a recipe; output_dir and resume_from_checkpoint are not compared.
std::vector<RecipeDifference> recipe_differences(const Recipe& before, const Recipe& after);

}  // namespace bantam
