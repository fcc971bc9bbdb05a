// SPDX-License-Identifier: Apache-2.0
#include "pipeline.h"

#include <unordered_map>

#include "../../kernels/error.h"
#include "byte_level.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {
namespace {

// Shown for an id that has no token (a model's table may have more rows than the tokenizer has tokens).
constexpr std::string_view kNoToken = "\xEF\xBF\xBD";

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts) : parts_(std::move(parts)), kinds_(vocabulary().size(), Kind::none) {
    for (size_t id = 0; id < kinds_.size(); ++id) {
      if (!vocabulary().text(static_cast<int32_t>(id)).empty()) kinds_[id] = Kind::plain;
    }
    texts_.resize(kinds_.size());
    std::unordered_map<int32_t, std::string_view> contents;
    for (const AddedToken& t : parts_.added) {
      const auto [it, fresh] = contents.emplace(t.id, t.content);
      if (!fresh && it->second != t.content) fail(str("added token ", t.id, " is there twice"));
      read_added(t);
    }
    for (const auto* list : {&parts_.post_processor.prefix, &parts_.post_processor.suffix}) {
      for (const int32_t id : *list) check_id(id, "the post-processor's token");
    }
    check_id(parts_.bos, "BOS");
    check_id(parts_.eos, "EOS");
    if (parts_.decoder.only_bytes) read_bytes();
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> out;
    out.reserve(text.size() / 3 + 8);
    const PostProcessor& around = parts_.post_processor;
    if (options.add_special) out = around.prefix;
    encode_text(text, options.parse_special, out);
    if (options.add_special) out.insert(out.end(), around.suffix.begin(), around.suffix.end());
    return out;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string bytes;
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      std::string_view text = kNoToken;
      if (id >= 0 && id < vocab_size() && kinds_[static_cast<size_t>(id)] != Kind::none) {
        if (skip_special && kinds_[static_cast<size_t>(id)] == Kind::special) continue;
        text = text_of(id);
      }
      parts_.decoder.only_bytes ? void(bytes += text) : void(tokens.emplace_back(text));
    }
    return parts_.decoder.only_bytes ? bytes : parts_.decoder.apply(std::move(tokens));
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(kinds_.size()); }
  int32_t bos_id() const override { return parts_.bos; }
  int32_t eos_id() const override { return parts_.eos; }
  bool adds_bos() const override {
    const auto& prefix = parts_.post_processor.prefix;
    return parts_.bos >= 0 && !prefix.empty() && prefix[0] == parts_.bos;
  }
  bool adds_eos() const override {
    const auto& suffix = parts_.post_processor.suffix;
    return parts_.eos >= 0 && !suffix.empty() && suffix.back() == parts_.eos;
  }
  int32_t token_id(std::string_view token) const override {
    const int32_t id = added_.find(token);
    return id >= 0 ? id : vocabulary().find(token);
  }
  std::vector<std::pair<std::string, std::string>> files() const override { return parts_.files; }
  size_t unencodable(std::string_view text) const override {
    if (parts_.model->complete()) return 0;
    std::vector<int32_t> ids;
    return encode_text(text, false, ids);
  }

 private:
  enum class Kind : uint8_t { none, plain, special };

  const Vocabulary& vocabulary() const { return parts_.model->vocabulary(); }
  std::string_view text_of(int32_t id) const {
    const std::string& own = texts_[static_cast<size_t>(id)];
    return own.empty() ? vocabulary().text(id) : own;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::model, str(parts_.where, ": ", what));
  }
  void check_id(int32_t id, const char* what) const {
    if (id < 0) return;
    if (id >= vocab_size() || kinds_[static_cast<size_t>(id)] == Kind::none)
      fail(str(what, ": id ", id, " has no token"));
  }

  void read_added(const AddedToken& t) {
    if (!plausible_id(t.id, vocabulary().size() + parts_.added.size())) {
      fail(str("added token '", printable(t.content), "' has id ", t.id, ", the vocabulary ends at ",
               vocabulary().size()));
    }
    if (t.content.empty()) fail(str("added token ", t.id, " is empty"));
    const auto id = static_cast<size_t>(t.id);
    if (id >= kinds_.size()) {
      kinds_.resize(id + 1, Kind::none);
      texts_.resize(id + 1);
    }
    const int32_t known = token_id(t.content);
    const bool other_text = id < vocabulary().size() && !vocabulary().text(t.id).empty() && known != t.id;
    if ((known >= 0 && known != t.id) || other_text) {
      fail(str("added token '", printable(t.content), "' has id ", t.id, ", which the vocabulary has otherwise"));
    }
    kinds_[id] = t.special ? Kind::special : Kind::plain;
    texts_[id] = t.content;
    added_.add(t.content, t.id);
    if (!t.normalized) return raw_.add(t);
    // What is looked for in normalised text is written as such, and decoded as such.
    AddedToken found = t;
    parts_.normalizer.apply(found.content);
    if (found.content.empty()) fail(str("added token '", printable(t.content), "' is empty when normalised"));
    texts_[id] = found.content;
    normalized_.add(found);
  }

  // What a token stands for; the texts of added tokens are text, not in the byte alphabet.
  void read_bytes() {
    for (size_t i = 0; i < vocabulary().size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      if (!texts_[i].empty() || kinds_[i] == Kind::none) continue;
      if (auto bytes = alphabet_to_bytes(vocabulary().text(id))) texts_[i] = *std::move(bytes);
    }
  }

  // How many bytes have no token.
  size_t encode_text(std::string_view text, bool parse_special, std::vector<int32_t>& out) const {
    std::string valid;
    const bool keeps_bytes = parts_.model->takes_bytes();
    if (!keeps_bytes && !utf8_valid(text)) text = valid = replace_invalid(text);
    size_t lost = 0;
    for (const auto& part : raw_.cut(text, parse_special)) {
      if (part.id >= 0) {
        out.push_back(part.id);
        continue;
      }
      // Bytes that are not UTF-8 stay bytes, are pieces of their own and meet no rule.
      for (std::string_view rest = part.text; !rest.empty();) {
        const size_t good = keeps_bytes ? utf8_valid_prefix(rest) : rest.size();
        if (good > 0) lost += encode_valid(rest.substr(0, good), rest.data() == text.data(), parse_special, out);
        rest.remove_prefix(good);
        size_t bad = 0;
        while (bad < rest.size() && utf8_sequence(rest.substr(bad)) == 0) ++bad;
        if (bad > 0) lost += parts_.model->encode(rest.substr(0, bad), out);
        rest.remove_prefix(bad);
      }
    }
    return lost;
  }

  size_t encode_valid(std::string_view text, bool at_start, bool parse_special, std::vector<int32_t>& out) const {
    std::string changed;
    if (!parts_.normalizer.keeps(text)) {
      changed = text;
      parts_.normalizer.apply(changed);
      text = changed;
    }
    size_t lost = 0;
    for (const auto& part : normalized_.cut(text, parse_special)) {
      if (part.id >= 0) {
        out.push_back(part.id);
        continue;
      }
      Pieces pieces;
      pieces.list.assign(1, part.text);
      pieces.at_start = at_start && part.text.data() == text.data();
      parts_.pre_tokenizer.apply(pieces);
      for (const std::string_view piece : pieces.list) lost += parts_.model->encode(piece, out);
    }
    return lost;
  }

  PipelineParts parts_;
  std::vector<Kind> kinds_;
  std::vector<std::string> texts_;  // where it is not the vocabulary's
  TextTable added_;
  AddedTokenFinder raw_, normalized_;  // looked for before and behind the normaliser
};

}  // namespace

std::shared_ptr<const Tokenizer> make_pipeline(PipelineParts parts) {
  return std::make_shared<Pipeline>(std::move(parts));
}

}  // namespace bantam
