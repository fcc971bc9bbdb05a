// SPDX-License-Identifier: Apache-2.0
#include "text_model.h"

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {

Vocabulary::Vocabulary(std::vector<std::string> tokens, const std::string& where, Twice twice)
    : tokens_(std::move(tokens)) {
  size_t bytes = 0;
  for (const std::string& t : tokens_) bytes += t.size();
  by_text_.reserve(tokens_.size(), bytes);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const bool last = twice == Twice::last_counts;
    if (tokens_[id].empty() || by_text_.add(tokens_[id], static_cast<int32_t>(id), last) || last) continue;
    throw Error(ErrorCode::model,
                str(where, ": token '", printable(tokens_[id]), "' has ids ", by_text_.find(tokens_[id]), " and ", id));
  }
}

std::string byte_token(uint8_t byte) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace bantam
