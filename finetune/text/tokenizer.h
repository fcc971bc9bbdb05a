// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, whatever file the vocabulary came from.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// Bytes of a text, from begin to before end.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct EncodeOptions {
  bool add_special = true;     ///< add BOS / EOS as the tokenizer's own configuration says
  bool parse_special = false;  ///< true: control tokens written in the text become their ids; false: plain text
  /// With parse_special: a control token whose own text shares a byte with one of these spans is plain text all the
  /// same. In ascending order. What lies within the spans is read as without parse_special; a control token that would
  /// reach across an end of a span is not seen at all, so that the text on either side is read on its own: plain text
  /// neither makes control tokens nor swallows those beside it. Added tokens that are not special are found as ever.
  std::span<const TextSpan> plain{};
};

struct Encoding {
  std::vector<int32_t> ids;
  /// As many: the bytes of the text that each id stands for, ascending by begin. Empty for BOS and EOS that were added.
  /// What a rule of the vocabulary puts in (a space before the text) stands for the character beside it; what it
  /// composes of several characters, or changes in a way that cannot be told apart, stands for all of them. Ids for
  /// single bytes of a character have that byte where it is in the text as it stands, else the whole character. Spans
  /// cover all bytes but those that the vocabulary's rules take away.
  std::vector<TextSpan> spans;
};

/// Immutable; safe to use from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  /// The ids of encode(), and what each stands for.
  virtual Encoding encode_with_spans(std::string_view text, const EncodeOptions& options = {}) const = 0;
  /// Bytes of the ids joined; control tokens give nothing when skip_special. May end inside a UTF-8 sequence.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = true) const = 0;
  virtual int32_t vocab_size() const = 0;          ///< highest id + 1
  virtual int32_t bos_id() const = 0;              ///< -1: none
  virtual int32_t eos_id() const = 0;              ///< -1: none
  virtual bool adds_bos() const = 0;               ///< encode(add_special) puts BOS first
  virtual bool adds_eos() const { return false; }  ///< encode(add_special) puts EOS last
  /// Id of a token by its exact text, control tokens included; -1: none.
  virtual int32_t token_id(std::string_view token) const = 0;
  /// The text of a token as the vocabulary file writes it, in its alphabet ("\u0120the", "\u2581the", "<0x0A>");
  /// control tokens too. Empty for an id without a token.
  virtual std::string piece(int32_t id) const = 0;
  /// A control token: text makes it only with parse_special. False for an id without a token.
  virtual bool is_special(int32_t id) const = 0;
  /// Bytes of `text` for which the vocabulary has no token: encode() leaves them out or writes the unknown token (a few
  /// byte-level vocabularies lack rare control characters).
  virtual size_t unencodable(std::string_view text) const {
    (void)text;
    return 0;
  }
  /// Files that a run folder should carry, already complete: name -> content (e.g. tokenizer.json).
  virtual std::vector<std::pair<std::string, std::string>> files() const = 0;
};

/// From a model folder (tokenizer.json, else tekken.json, else tokenizer.model, else NAME.tiktoken) or a .gguf file. Error(model) when a
/// rule, a normaliser or a kind is unknown: never a silent fall-back.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& model);

}  // namespace bantam
