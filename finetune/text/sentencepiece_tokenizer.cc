// SPDX-License-Identifier: Apache-2.0
// SentencePiece vocabularies, through libsentencepiece. Bytes that are not UTF-8 become U+FFFD there.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../../kernels/error.h"
#include "json_file.h"
#include "sentencepiece_proto.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space
constexpr std::string_view kNoToken = "\xEF\xBF\xBD", kUnknown = " \xE2\x81\x87 ";

struct SentencePieceParts {
  std::string where, proto;
  std::vector<AddedToken> added;  ///< beyond the model's own pieces
  int32_t bos = -1, eos = -1;     ///< -1: as the model says
  std::optional<std::string> bos_text, eos_text;
  std::optional<bool> adds_bos, adds_eos, legacy;
  std::vector<std::pair<std::string, std::string>> files;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceParts parts) : parts_(std::move(parts)) {
    settings_ = check_sentencepiece_model(parts_.proto, parts_.where);
    load(model_, parts_.proto);
    // After a control token the text goes on, unless the file keeps the older way, where each part starts with a space.
    separate_ = settings_.add_dummy_prefix && !parts_.legacy.value_or(true);
    if (separate_) load(inner_, without_dummy_prefix(parts_.proto));
    read_pieces();
    read_added();
    if (parts_.bos_text) parts_.bos = id_of(*parts_.bos_text, "bos_token");
    if (parts_.eos_text) parts_.eos = id_of(*parts_.eos_text, "eos_token");
    if (parts_.bos < 0) parts_.bos = model_.bos_id();
    if (parts_.eos < 0) parts_.eos = model_.eos_id();
    for (const int32_t id : {parts_.bos, parts_.eos}) {
      if (id >= vocab_size()) fail(str("BOS or EOS has id ", id, ", the vocabulary has ", vocab_size(), " tokens"));
    }
    adds_bos_ = parts_.adds_bos.value_or(parts_.bos >= 0);
    adds_eos_ = parts_.adds_eos.value_or(false);
    if ((adds_bos_ && parts_.bos < 0) || (adds_eos_ && parts_.eos < 0)) {
      fail("BOS or EOS is to be added, but the model has none");
    }
    parts_.proto = {};
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> out;
    if (options.add_special && adds_bos_) out.push_back(parts_.bos);
    for (const auto& part : cut(text, options)) {
      if (part.id >= 0) {
        out.push_back(part.id);
        continue;
      }
      std::vector<int> ids;
      check(model_for(part, text).Encode(part.text, &ids));
      out.insert(out.end(), ids.begin(), ids.end());
    }
    if (options.add_special && adds_eos_) out.push_back(parts_.eos);
    return out;
  }

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override {
    Encoding out;
    const auto put = [&](int32_t id, TextSpan span) {
      out.ids.push_back(id);
      out.spans.push_back(span);
    };
    if (options.add_special && adds_bos_) put(parts_.bos, {});
    for (const auto& part : cut(text, options)) {
      const auto at = static_cast<size_t>(part.text.data() - text.data());
      if (part.id >= 0) {
        put(part.id, {at, at + part.text.size()});
        continue;
      }
      sentencepiece::ImmutableSentencePieceText pieces;
      check(model_for(part, text).Encode(part.text, pieces.mutable_proto()));
      const size_t start = out.ids.size();
      for (size_t i = 0; i < pieces.pieces_size(); ++i) {
        const auto piece = pieces.pieces(static_cast<int>(i));
        put(static_cast<int32_t>(piece.id()), {piece.begin(), piece.end()});
      }
      fill_spans(part.text, std::span(out.ids).subspan(start), std::span(out.spans).subspan(start));
      for (size_t i = start; i < out.spans.size(); ++i) out.spans[i].begin += at, out.spans[i].end += at;
    }
    if (options.add_special && adds_eos_) put(parts_.eos, {text.size(), text.size()});
    return out;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string out;
    // The space that encoding put before the text goes; all of them where the model removes extra spaces anyway.
    bool start = (settings_.add_dummy_prefix || settings_.remove_extra_whitespaces) && !settings_.space_as_suffix;
    for (const int32_t id : ids) {
      const auto kind = id < 0 || id >= vocab_size() ? Kind::none : kinds_[static_cast<size_t>(id)];
      if (kind == Kind::special && skip_special) continue;
      if (kind == Kind::none) {
        out += kNoToken;
      } else if (kind == Kind::unknown && skip_special) {
        out += kUnknown;
      } else {
        std::string_view bytes = bytes_[static_cast<size_t>(id)];
        const bool strip = start && kind == Kind::plain && bytes.starts_with(' ');
        if (strip) bytes.remove_prefix(1);
        out += bytes;
        start = start && (kind == Kind::special || (strip && bytes.empty() && settings_.remove_extra_whitespaces));
        continue;
      }
      start = false;
    }
    return out;
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(kinds_.size()); }
  int32_t bos_id() const override { return parts_.bos; }
  int32_t eos_id() const override { return parts_.eos; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_eos() const override { return adds_eos_; }
  int32_t token_id(std::string_view token) const override {
    const auto it = by_text_.find(std::string(token));
    return it == by_text_.end() ? -1 : it->second;
  }
  std::string piece(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return id < model_.GetPieceSize() ? model_.IdToPiece(id) : bytes_[static_cast<size_t>(id)];
  }
  bool is_special(int32_t id) const override {
    const auto kind = id < 0 || id >= vocab_size() ? Kind::none : kinds_[static_cast<size_t>(id)];
    return kind == Kind::special || kind == Kind::unknown;
  }
  std::vector<std::pair<std::string, std::string>> files() const override { return parts_.files; }

 private:
  enum class Kind : uint8_t { none, plain, special, unknown };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::model, str(parts_.where, ": ", what));
  }

  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) throw Error(ErrorCode::data, str(parts_.where, ": ", status.ToString()));
  }

  std::vector<AddedTokenFinder::Part> cut(std::string_view text, const EncodeOptions& options) const {
    const PlainSpans spans(options.plain);
    const Alignment none;
    const AddedTokenFinder::Plain plain{spans, none};
    return finder_.cut(text, options.parse_special, &plain);
  }

  const sentencepiece::SentencePieceProcessor& model_for(const AddedTokenFinder::Part& part,
                                                         std::string_view text) const {
    return separate_ && part.text.data() != text.data() ? inner_ : model_;
  }

  // The library gives nothing to pieces that it put in, to the front pieces of what a rule made of one stretch, and to
  // all bytes of a character but the last.
  void fill_spans(std::string_view text, std::span<const int32_t> ids, std::span<TextSpan> spans) const {
    for (size_t i = 0; i < ids.size();) {
      size_t end = i;
      std::string bytes;  // of a character, when the pieces are bytes
      while (end < ids.size() && model_.IsByte(ids[end])) {
        bytes += bytes_[static_cast<size_t>(ids[end++])];
        if (spans[end - 1].end > spans[end - 1].begin) break;
      }
      if (end == i) ++end;
      TextSpan whole{spans[i].begin, spans[end - 1].end};
      if (whole.end == whole.begin) whole = beside(text, whole.begin);
      const bool exact = !bytes.empty() && text.substr(whole.begin, whole.end - whole.begin) == bytes;
      for (size_t k = i; k < end; ++k) {
        spans[k] = exact ? TextSpan{whole.begin + k - i, whole.begin + k - i + 1} : whole;
      }
      i = end;
    }
  }

  // The character at a place, or the last one.
  static TextSpan beside(std::string_view text, size_t at) {
    if (at < text.size()) return {at, at + std::max<size_t>(1, utf8_sequence(text.substr(at)))};
    return {text.size() - std::max<size_t>(1, utf8_last(text)), text.size()};
  }

  void load(sentencepiece::SentencePieceProcessor& model, std::string_view proto) const {
    const auto status = model.LoadFromSerializedProto(proto);
    if (!status.ok()) fail(str("not a usable SentencePiece model: ", printable(status.ToString())));
    if (model.GetPieceSize() < 1) fail("the SentencePiece model has no pieces");
  }

  void read_pieces() {
    const int size = model_.GetPieceSize();
    kinds_.resize(static_cast<size_t>(size), Kind::plain);
    bytes_.resize(kinds_.size());
    for (int id = 0; id < size; ++id) {
      const std::string& piece = model_.IdToPiece(id);
      const auto at = static_cast<size_t>(id);
      by_text_.emplace(piece, id);
      if (model_.IsByte(id)) {
        bytes_[at].push_back(byte_of(piece));
        continue;
      }
      for (size_t i = 0; i < piece.size();) {
        const bool space = std::string_view(piece).substr(i).starts_with(kSpace);
        space ? bytes_[at].push_back(' ') : bytes_[at].push_back(piece[i]);
        i += space ? kSpace.size() : 1;
      }
      if (!model_.IsControl(id) && !model_.IsUnknown(id)) continue;
      kinds_[at] = model_.IsUnknown(id) ? Kind::unknown : Kind::special;
      bytes_[at] = piece;
      finder_.add({.id = id, .content = piece, .special = true});
    }
  }

  // "<0x0A>".
  char byte_of(const std::string& piece) const {
    const bool good = piece.size() == 6 && piece.starts_with("<0x") && piece[5] == '>' &&
                      piece.find_first_not_of("0123456789abcdefABCDEF", 3) == 5;
    if (!good) fail(str("byte piece '", printable(piece), "', expected <0x00> to <0xFF>"));
    return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
  }

  void read_added() {
    const auto size = static_cast<int32_t>(kinds_.size());
    for (const AddedToken& t : parts_.added) {
      if (t.id < size) {
        if (model_.IdToPiece(t.id) != t.content) {
          fail(str("token ", t.id, " is '", printable(model_.IdToPiece(t.id)), "' in the model and '",
                   printable(t.content), "' among the added tokens"));
        }
      } else {
        const auto at = static_cast<size_t>(t.id);
        if (at >= kinds_.size()) {
          kinds_.resize(at + 1, Kind::none);
          bytes_.resize(at + 1);
        }
        if (!by_text_.emplace(t.content, t.id).second || kinds_[at] != Kind::none) {
          fail(str("added token ", t.id, " ('", printable(t.content), "') is there already"));
        }
        kinds_[at] = t.special ? Kind::special : Kind::plain;
        bytes_[at] = t.content;
      }
      finder_.add(t);
    }
  }

  int32_t id_of(const std::string& text, const char* what) const {
    const int32_t id = token_id(text);
    if (id < 0) fail(str(what, " '", printable(text), "' is not in the vocabulary"));
    return id;
  }

  SentencePieceParts parts_;
  SentencePieceSettings settings_;
  sentencepiece::SentencePieceProcessor model_, inner_;
  bool separate_ = false, adds_bos_ = false, adds_eos_ = false;
  std::vector<Kind> kinds_;
  std::vector<std::string> bytes_;
  std::unordered_map<std::string, int32_t> by_text_;
  AddedTokenFinder finder_;
};

}  // namespace

std::shared_ptr<const Tokenizer> read_sentencepiece_folder(const std::filesystem::path& folder,
                                                           const TokenizerConfig& config,
                                                           std::vector<AddedToken> added) {
  SentencePieceParts parts;
  parts.where = (folder / "tokenizer.model").string();
  parts.proto = read_text_file(folder / "tokenizer.model");
  parts.added = std::move(added);
  parts.bos_text = config.bos;
  parts.eos_text = config.eos;
  parts.adds_bos = config.adds_bos;
  parts.adds_eos = config.adds_eos;
  parts.legacy = config.legacy;
  parts.files = tokenizer_files(folder);
  return std::make_shared<SentencePieceTokenizer>(std::move(parts));
}

std::shared_ptr<const Tokenizer> read_gguf_sentencepiece(const GgufFile& file) {
  GgufVocabulary v = read_gguf_vocabulary(file);
  const std::string where = file.path().string();
  const auto scores = file.float_array("tokenizer.ggml.scores");
  if (scores.size() != v.tokens.size()) {
    throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.scores holds ", scores.size(), " scores for ",
                                      v.tokens.size(), " tokens"));
  }
  SentencePieceModel model;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (!std::isfinite(scores[i]))
      throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.scores[", i, "] is ", scores[i]));
    model.pieces.push_back({v.tokens[i], scores[i], v.types[i]});
    model.byte_fallback = model.byte_fallback || v.types[i] == kGgufByte;
  }
  // SentencePiece knows one unknown piece; converters mark place-holders as unknown too.
  model.unk = v.unk;
  if (model.unk < 0) {
    const auto it = std::find(v.types.begin(), v.types.end(), static_cast<int32_t>(kGgufUnknown));
    if (it == v.types.end()) throw Error(ErrorCode::model, str(where, ": the vocabulary has no unknown token"));
    model.unk = static_cast<int32_t>(it - v.types.begin());
  }
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    int32_t& type = model.pieces[i].type;
    if (static_cast<int32_t>(i) == model.unk) {
      type = kGgufUnknown;
    } else if (type == kGgufUnknown) {
      type = kGgufUnused;
    }
  }
  // Files that do not name them mean these.
  const auto control = [&](int32_t id, std::string_view text) {
    if (id >= 0) return id;
    for (size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.tokens[i] == text && v.types[i] == kGgufControl) return static_cast<int32_t>(i);
    }
    return -1;
  };
  v.bos = model.bos = control(v.bos, "<s>");
  v.eos = model.eos = control(v.eos, "</s>");
  model.add_dummy_prefix = file.find_boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  model.remove_extra_whitespaces = file.find_boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  SentencePieceParts parts;
  parts.where = where;
  parts.proto = write_sentencepiece_model(model);
  parts.bos = v.bos;
  parts.eos = v.eos;
  parts.adds_bos = v.adds_bos.value_or(v.bos >= 0);
  parts.adds_eos = v.adds_eos;
  parts.files = {{"tokenizer.model", parts.proto},
                 {"tokenizer_config.json",
                  write_tokenizer_config(v, "LlamaTokenizer", *parts.adds_bos, v.adds_eos.value_or(false))}};
  return std::make_shared<SentencePieceTokenizer>(std::move(parts));
}

}  // namespace bantam
