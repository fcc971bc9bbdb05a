// SPDX-License-Identifier: Apache-2.0
#include "precompiled.h"

#include <cstring>
#include <optional>
#include <vector>

#include "../../kernels/error.h"
#include "base64.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {
namespace {

// A double array of byte keys (Darts) whose values are places in a block of texts that end with a zero. As HF
// tokenizers read it: whole grapheme clusters of up to five bytes first, then single characters; and of several keys
// the shortest counts.
class Precompiled final : public Normalizer {
 public:
  Precompiled(std::vector<uint32_t> units, std::string texts, std::string at)
      : units_(std::move(units)), texts_(std::move(texts)), at_(std::move(at)) {}

  void apply(std::string& text, Edits* edits) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view cluster = rest.substr(0, grapheme_length(rest));
      const size_t at = text.size() - rest.size();
      rest.remove_prefix(cluster.size());
      if (cluster.size() < kLongestCluster + 1) {
        if (const auto changed = find(cluster)) {
          out += *changed;
          if (edits != nullptr && *changed != cluster) edits->replace(at, at + cluster.size(), changed->size());
          continue;
        }
      }
      for (size_t i = 0; i < cluster.size();) {
        const std::string_view character = cluster.substr(i, utf8_sequence(cluster.substr(i)));
        const std::string_view changed = find(character).value_or(character);
        out += changed;
        if (edits != nullptr && changed != character) {
          edits->replace(at + i, at + i + character.size(), changed.size());
        }
        i += character.size();
      }
    }
    text = std::move(out);
  }

 private:
  static constexpr size_t kLongestCluster = 5;

  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }

  // The text for the shortest key that `key` starts with.
  std::optional<std::string_view> find(std::string_view key) const {
    size_t node = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= units_.size()) break;
      const uint32_t unit = units_[node];
      if ((unit & (1u << 31 | 0xFF)) != byte) break;
      node ^= offset(unit);
      if (node >= units_.size()) break;
      if ((unit >> 8 & 1) != 0) return text_at(units_[node] & ~(1u << 31));
    }
    return std::nullopt;
  }

  std::string_view text_at(size_t at) const {
    if (at > texts_.size() || (at < texts_.size() && (static_cast<uint8_t>(texts_[at]) & 0xC0) == 0x80)) {
      throw Error(ErrorCode::model, str(at_, ": precompiled_charsmap leads to byte ", at, " of ", texts_.size()));
    }
    const std::string_view rest = std::string_view(texts_).substr(at);
    return rest.substr(0, rest.find('\0'));
  }

  std::vector<uint32_t> units_;
  std::string texts_, at_;
};

}  // namespace

std::unique_ptr<Normalizer> read_precompiled(const std::string& charsmap, const std::string& at) {
  const auto bytes = base64_decode(charsmap);
  uint32_t size = 0;
  if (bytes && bytes->size() >= sizeof size) std::memcpy(&size, bytes->data(), sizeof size);
  if (!bytes || size < sizeof(uint32_t) || size % sizeof(uint32_t) != 0 || size > bytes->size() - sizeof size) {
    throw Error(ErrorCode::model, str(at, ": precompiled_charsmap is not a table of replacements"));
  }
  std::vector<uint32_t> units(size / sizeof(uint32_t));
  std::memcpy(units.data(), bytes->data() + sizeof size, size);
  std::string texts = bytes->substr(sizeof size + size);
  if (!utf8_valid(texts)) throw Error(ErrorCode::model, str(at, ": precompiled_charsmap: texts that are not UTF-8"));
  return std::make_unique<Precompiled>(std::move(units), std::move(texts), at);
}

}  // namespace bantam
