// SPDX-License-Identifier: Apache-2.0
// The fourth stage of tokenizer.json: what stands before and after the ids of a text.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bantam {

struct PostProcessor {
  std::vector<int32_t> prefix, suffix;
};

/// The "post_processor" of a tokenizer.json (null: none), for a single text. Error(model) naming `where`, the place
/// within and the part that is not known.
PostProcessor read_post_processor(const nlohmann::json* j, const std::string& where);

}  // namespace bantam
