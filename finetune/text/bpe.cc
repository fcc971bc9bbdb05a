// SPDX-License-Identifier: Apache-2.0
#include "bpe.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "../../kernels/error.h"
#include "bpe_merges.h"
#include "byte_level.h"
#include "normalize.h"
#include "utf8.h"

namespace bantam {
namespace {

// Shown for an id that has no token (a model's table may have more rows than the tokenizer has tokens).
constexpr std::string_view kNoToken = "\xEF\xBF\xBD";

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : parts_(std::move(parts)), merges_(parts_.merges.size()), kinds_(parts_.tokens.size(), Kind::none) {
    read_tokens();
    read_added();
    read_merges();
    for (const auto* list : {&parts_.prefix, &parts_.suffix}) {
      for (const int32_t id : *list) check_id(id, "the post-processor's token");
    }
    check_id(parts_.bos, "BOS");
    check_id(parts_.eos, "EOS");
    check_id(parts_.unk, "unk_token");
    parts_.merges = {};  // now in merges_
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> out;
    if (options.add_special) out = parts_.prefix;
    const size_t set = options.parse_special ? 1 : 0;
    // First the tokens that are looked for in the text as it is, then, within the rest, those of the normalised text.
    for (const auto& raw : raw_[set].cut(text)) {
      if (raw.id >= 0) {
        out.push_back(raw.id);
        continue;
      }
      std::string changed;
      std::string_view normal = raw.text;
      if (parts_.nfc && !is_ascii(raw.text)) normal = changed = to_nfc(raw.text);
      for (const auto& part : normalized_[set].cut(normal)) {
        part.id >= 0 ? out.push_back(part.id) : encode_plain(part.text, out);
      }
    }
    if (options.add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
    return out;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string out;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size() || kinds_[static_cast<size_t>(id)] == Kind::none) {
        out += kNoToken;
      } else if (!skip_special || kinds_[static_cast<size_t>(id)] != Kind::special) {
        out += bytes_[static_cast<size_t>(id)];
      }
    }
    return out;
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(kinds_.size()); }
  int32_t bos_id() const override { return parts_.bos; }
  int32_t eos_id() const override { return parts_.eos; }
  bool adds_bos() const override { return parts_.bos >= 0 && !parts_.prefix.empty() && parts_.prefix[0] == parts_.bos; }
  bool adds_eos() const override {
    return parts_.eos >= 0 && !parts_.suffix.empty() && parts_.suffix.back() == parts_.eos;
  }
  int32_t token_id(std::string_view token) const override {
    const auto it = by_text_.find(std::string(token));
    return it == by_text_.end() ? -1 : it->second;
  }
  std::vector<std::pair<std::string, std::string>> files() const override { return parts_.files; }
  size_t unencodable(std::string_view text) const override {
    if (all_bytes_) return 0;
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] < 0; }));
  }

 private:
  enum class Kind : uint8_t { none, plain, special };

  static bool is_ascii(std::string_view s) {
    return std::all_of(s.begin(), s.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::model, str(parts_.where, ": ", what));
  }
  void check_id(int32_t id, const char* what) const {
    if (id < 0) return;
    if (id >= vocab_size() || kinds_[static_cast<size_t>(id)] == Kind::none)
      fail(str(what, ": id ", id, " has no token"));
  }

  void read_tokens() {
    byte_ids_.fill(-1);
    bytes_.resize(kinds_.size());
    by_text_.reserve(kinds_.size());
    for (size_t id = 0; id < kinds_.size(); ++id) {
      const std::string& text = parts_.tokens[id];
      if (text.empty()) continue;
      const auto [it, fresh] = by_text_.emplace(text, static_cast<int32_t>(id));
      if (!fresh) fail(str("token '", printable(text), "' has ids ", it->second, " and ", id));
      kinds_[id] = Kind::plain;
      auto bytes = alphabet_to_bytes(text);
      if (bytes && bytes->size() == 1) byte_ids_[static_cast<uint8_t>((*bytes)[0])] = static_cast<int32_t>(id);
      if (bytes && parts_.ignore_merges) words_.emplace(*bytes, static_cast<int32_t>(id));
      bytes_[id] = bytes ? std::move(*bytes) : text;
    }
    all_bytes_ = std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
    if (std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; })) {
      fail("no token of the vocabulary is a byte: this is not a byte-level vocabulary");
    }
  }

  void read_added() {
    for (const AddedToken& t : parts_.added) {
      if (t.id < 0 || t.id > kMostTokenId) fail(str("added token '", printable(t.content), "' has id ", t.id));
      if (t.content.empty()) fail(str("added token ", t.id, " is empty"));
      const auto id = static_cast<size_t>(t.id);
      if (id >= kinds_.size()) {
        kinds_.resize(id + 1, Kind::none);
        bytes_.resize(id + 1);
      }
      const auto [it, fresh] = by_text_.emplace(t.content, t.id);
      const bool other_text = fresh && kinds_[id] != Kind::none;
      if (it->second != t.id || other_text) {
        fail(str("added token '", printable(t.content), "' has id ", t.id, ", which the vocabulary has otherwise"));
      }
      kinds_[id] = t.special ? Kind::special : Kind::plain;
      bytes_[id] = t.content;
      AddedToken found = t;
      if (t.normalized && parts_.nfc) found.content = to_nfc(t.content);
      auto& finders = t.normalized ? normalized_ : raw_;
      finders[1].add(found);
      if (!t.special) finders[0].add(found);
    }
  }

  void read_merges() {
    if (parts_.merges.empty()) fail("the merge table is empty");
    for (size_t rank = 0; rank < parts_.merges.size(); ++rank) {
      const auto& [left, right] = parts_.merges[rank];
      const auto id = [&](const std::string& text) {
        const auto it = by_text_.find(text);
        if (it == by_text_.end()) {
          fail(str("merge ", rank, " ('", printable(left), "', '", printable(right), "') needs token '",
                   printable(text), "', which the vocabulary lacks"));
        }
        return it->second;
      };
      merges_.add(id(left), id(right), {static_cast<int32_t>(rank), id(left + right)});
    }
  }

  void encode_plain(std::string_view text, std::vector<int32_t>& out) const {
    std::vector<std::string_view> words;
    std::vector<std::unique_ptr<std::string>> store;
    parts_.pretokenizer.split(text, words, store);
    std::vector<int32_t> ids;
    for (const std::string_view word : words) {
      if (parts_.ignore_merges) {
        const auto it = words_.find(std::string(word));
        if (it != words_.end()) {
          out.push_back(it->second);
          continue;
        }
      }
      ids.clear();
      for (const char c : word) {
        const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
        if (id >= 0) {
          ids.push_back(id);
        } else if (parts_.unk >= 0 && !(parts_.fuse_unk && !ids.empty() && ids.back() == parts_.unk)) {
          ids.push_back(parts_.unk);
        }
      }
      merges_.apply(ids);
      out.insert(out.end(), ids.begin(), ids.end());
    }
  }

  BpeParts parts_;
  BpeMerges merges_;
  std::vector<Kind> kinds_;
  std::vector<std::string> bytes_;  // id -> what it stands for
  std::array<int32_t, 256> byte_ids_{};
  bool all_bytes_ = false;
  std::unordered_map<std::string, int32_t> by_text_, words_;
  AddedTokenFinder raw_[2], normalized_[2];  // [0]: without control tokens
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_shared<BpeTokenizer>(std::move(parts));
}

std::pair<std::string, std::string> split_merge(std::string_view merge, size_t index, const std::string& where) {
  const size_t space = merge.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    throw Error(ErrorCode::model,
                str(where, ": merge ", index, " is '", printable(merge), "', expected two tokens and a space"));
  }
  return {std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))};
}

}  // namespace bantam
