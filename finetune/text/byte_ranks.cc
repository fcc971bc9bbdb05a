// SPDX-License-Identifier: Apache-2.0
#include "byte_ranks.h"

#include "base64.h"
#include "bpe.h"
#include "byte_level.h"

namespace bantam {
namespace {

constexpr size_t kLongestToken = 2048;

BpeMerges merges_of(const ByteRanks& ranks, int32_t first_id) {
  BpeMerges out(4 * ranks.size());
  for (size_t rank = 0; rank < ranks.bytes().size(); ++rank) {
    const std::string_view bytes = ranks.bytes()[rank];
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const int32_t left = ranks.find(bytes.substr(0, cut));
      const int32_t right = left < 0 ? -1 : ranks.find(bytes.substr(cut));
      if (right < 0) continue;
      const auto number = static_cast<int32_t>(rank);
      out.add(first_id + left, first_id + right, {number, first_id + number});
    }
  }
  return out;
}

}  // namespace

ByteRanks::Added ByteRanks::add(std::string_view base64, int64_t rank) {
  auto bytes = base64_decode(base64);
  if (!bytes || bytes->empty() || bytes->size() > kLongestToken) return Added::bad_base64;
  const auto at = static_cast<size_t>(rank);
  if (at >= bytes_.size()) bytes_.resize(at + 1);
  if (!bytes_[at].empty()) return Added::same_rank;
  if (!by_bytes_.add(*bytes, static_cast<int32_t>(rank))) return Added::same_token;
  bytes_[at] = *std::move(bytes);
  return Added::yes;
}

std::unique_ptr<TextModel> make_rank_model(const ByteRanks& ranks, int32_t first_id, const std::string& where) {
  BpeParts bpe{.where = where, .bytes = true, .ignore_merges = true};
  bpe.tokens.resize(static_cast<size_t>(first_id));
  bpe.tokens.reserve(bpe.tokens.size() + ranks.bytes().size());
  for (const std::string& bytes : ranks.bytes()) bpe.tokens.push_back(bytes_to_alphabet(bytes));
  bpe.table = merges_of(ranks, first_id);
  return std::make_unique<BpeModel>(std::move(bpe));
}

}  // namespace bantam
