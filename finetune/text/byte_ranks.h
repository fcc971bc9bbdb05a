// SPDX-License-Identifier: Apache-2.0
// Vocabularies that are a list of byte strings in order of rank, without merges: tiktoken's kind.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text_model.h"
#include "text_table.h"

namespace bantam {

class ByteRanks {
 public:
  enum class Added { yes, bad_base64, same_rank, same_token };
  /// `base64`: the token's bytes. `rank` is 0 to kMostTokenId.
  Added add(std::string_view base64, int64_t rank);
  /// How many tokens there are, and by rank their bytes (empty: none of that rank).
  size_t size() const { return by_bytes_.size(); }
  const std::vector<std::string>& bytes() const { return bytes_; }
  int32_t find(std::string_view bytes) const { return by_bytes_.find(bytes); }

 private:
  std::vector<std::string> bytes_;
  TextTable by_bytes_;
};

/// Two neighbours merge when together they are a token; its rank decides which go first. Ids are ranks from `first_id`
/// on. Error(model) naming `where` for a vocabulary without any single byte.
std::unique_ptr<TextModel> make_rank_model(const ByteRanks& ranks, int32_t first_id, const std::string& where);

}  // namespace bantam
