// SPDX-License-Identifier: Apache-2.0
#include "pipeline.h"

#include <unordered_map>

#include "../../kernels/error.h"
#include "byte_level.h"
#include "piece_sources.h"
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
    encode_all(text, options, out, nullptr);
    return out;
  }

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override {
    Encoding out;
    encode_all(text, options, out.ids, &out.spans);
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
    return encode_text(text, {.parse_special = false, .plain = PlainSpans({}), .ids = ids});
  }
  std::string piece(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    const auto at = static_cast<size_t>(id);
    if (at < vocabulary().size() && !vocabulary().text(id).empty()) return vocabulary().text(id);
    const auto it = written_.find(id);  // where it differs from what is looked for
    return it == written_.end() ? texts_[at] : it->second;
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && kinds_[static_cast<size_t>(id)] == Kind::special;
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
    if (found.content != t.content) written_.emplace(t.id, t.content);
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

  // What encoding goes on with, and where it puts what it finds.
  struct Run {
    bool parse_special;
    const PlainSpans plain;
    std::vector<int32_t>& ids;
    std::vector<TextSpan>* spans = nullptr;  // null: not asked for
    bool traced() const { return spans != nullptr || !plain.empty(); }
  };

  void encode_all(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids,
                  std::vector<TextSpan>* spans) const {
    ids.reserve(text.size() / 3 + 8);
    if (spans != nullptr) spans->reserve(text.size() / 3 + 8);
    const PostProcessor& around = parts_.post_processor;
    if (options.add_special) ids = around.prefix;
    if (options.add_special && spans != nullptr) spans->resize(ids.size());
    encode_text(text, {options.parse_special, PlainSpans(options.plain), ids, spans});
    if (options.add_special) ids.insert(ids.end(), around.suffix.begin(), around.suffix.end());
    if (spans != nullptr) spans->resize(ids.size(), {text.size(), text.size()});
  }

  // How many bytes have no token.
  size_t encode_text(std::string_view text, const Run& run) const {
    std::string valid;
    Alignment given;
    const bool keeps_bytes = parts_.model->takes_bytes();
    if (!keeps_bytes && !utf8_valid(text)) {
      Edits edits;
      text = valid = replace_invalid(text, run.traced() ? &edits : nullptr);
      given.add(std::move(edits));
    }
    size_t lost = 0;
    const AddedTokenFinder::Plain plain{run.plain, given};
    for (const auto& part : raw_.cut(text, run.parse_special, &plain)) {
      if (part.id >= 0) {
        put_token(part, text, given, run);
        continue;
      }
      // Bytes that are not UTF-8 stay bytes, are pieces of their own and meet no rule.
      for (std::string_view rest = part.text; !rest.empty();) {
        const size_t good = keeps_bytes ? utf8_valid_prefix(rest) : rest.size();
        const auto at = static_cast<size_t>(rest.data() - text.data());
        if (good > 0) lost += encode_valid(rest.substr(0, good), Alignment(&given, at), at == 0, run);
        rest.remove_prefix(good);
        size_t bad = 0;
        while (bad < rest.size() && utf8_sequence(rest.substr(bad)) == 0) ++bad;
        if (bad > 0) lost += encode_piece(rest.substr(0, bad), given, at + good, run);
        rest.remove_prefix(bad);
      }
    }
    return lost;
  }

  size_t encode_valid(std::string_view text, Alignment alignment, bool at_start, const Run& run) const {
    std::string changed;
    if (!parts_.normalizer.keeps(text)) {
      changed = text;
      parts_.normalizer.apply(changed, run.traced() ? &alignment : nullptr);
      text = changed;
    }
    size_t lost = 0;
    const AddedTokenFinder::Plain plain{run.plain, alignment};
    for (const auto& part : normalized_.cut(text, run.parse_special, &plain)) {
      if (part.id >= 0) {
        put_token(part, text, alignment, run);
        continue;
      }
      Pieces pieces;
      pieces.list.assign(1, part.text);
      pieces.at_start = at_start && part.text.data() == text.data();
      pieces.traced = run.spans != nullptr;
      parts_.pre_tokenizer.apply(pieces);
      if (run.spans == nullptr) {
        for (const std::string_view piece : pieces.list) lost += parts_.model->encode(piece, run.ids);
        continue;
      }
      const PieceSources sources(text, alignment, pieces);
      for (const std::string_view piece : pieces.list) {
        const auto from = sources.find(piece);
        lost += encode_piece(piece, *from.alignment, from.at, run);
      }
    }
    return lost;
  }

  // `at`: where the piece stands in what `alignment` describes.
  size_t encode_piece(std::string_view piece, const Alignment& alignment, size_t at, const Run& run) const {
    if (run.spans == nullptr) return parts_.model->encode(piece, run.ids);
    std::vector<TextSpan>& spans = *run.spans;
    size_t i = spans.size();
    const size_t lost = parts_.model->encode(piece, run.ids, &spans);
    if (const auto shift = alignment.shift()) {
      for (; i < spans.size(); ++i) spans[i] = {spans[i].begin + *shift + at, spans[i].end + *shift + at};
    } else {
      for (; i < spans.size(); ++i) put_span(i, alignment.source({spans[i].begin + at, spans[i].end + at}), spans);
    }
    return lost;
  }

  static void put_token(const AddedTokenFinder::Part& part, std::string_view text, const Alignment& alignment,
                        const Run& run) {
    run.ids.push_back(part.id);
    if (run.spans == nullptr) return;
    const auto at = static_cast<size_t>(part.text.data() - text.data());
    run.spans->emplace_back();
    put_span(run.spans->size() - 1, alignment.source({at, at + part.text.size()}), *run.spans);
  }

  // What was put in stands for the character beside it, of which bytes may be tokens of their own before it.
  static void put_span(size_t i, TextSpan s, std::vector<TextSpan>& spans) {
    if (i > 0) s.begin = std::max(s.begin, spans[i - 1].begin);
    spans[i] = {s.begin, std::max(s.begin, s.end)};
  }

  PipelineParts parts_;
  std::vector<Kind> kinds_;
  std::vector<std::string> texts_;                    // where it is not the vocabulary's
  std::unordered_map<int32_t, std::string> written_;  // added tokens that are looked for in another form
  TextTable added_;
  AddedTokenFinder raw_, normalized_;  // looked for before and behind the normaliser
};

}  // namespace

std::shared_ptr<const Tokenizer> make_pipeline(PipelineParts parts) {
  return std::make_shared<Pipeline>(std::move(parts));
}

}  // namespace bantam
