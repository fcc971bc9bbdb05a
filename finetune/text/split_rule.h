// SPDX-License-Identifier: Apache-2.0
// Cutting text into words before BPE: regular expressions of tokenizer files, run by PCRE2.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// A regular expression whose matches, and the gaps between them, become pieces. Immutable, safe in several threads.
class SplitRule {
 public:
  /// `pattern` as tokenizer files write it (Oniguruma's dialect, Unicode classes). Error(model) naming `where` for what
  /// does not compile and for constructs that PCRE2 reads otherwise.
  SplitRule(const std::string& pattern, const std::string& where);
  /// A rule that isolates each occurrence of a literal string.
  static SplitRule literal(const std::string& text, const std::string& where);
  /// Appends the pieces of `text`, which must be valid UTF-8; they cover it, none is empty. Error(data) when the
  /// expression gives up on this text.
  void split(std::string_view text, std::vector<std::string_view>& out) const;
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_, where_;
  std::shared_ptr<const void> code_;  // pcre2_code
  bool jit_ = false;
};

/// The steps of a pre-tokenizer.
class Pretokenizer {
 public:
  void add_rule(SplitRule rule) { steps_.push_back({std::move(rule)}); }
  /// From here on each piece that does not start with a space gets one.
  void add_prefix_space() { steps_.emplace_back(); }
  /// Pieces of `text`; bytes that are not UTF-8 are pieces of their own and meet no rule. Views into `text` or `store`.
  void split(std::string_view text, std::vector<std::string_view>& out,
             std::vector<std::unique_ptr<std::string>>& store) const;

 private:
  std::vector<std::vector<SplitRule>> steps_;  // one rule, or none: prefix space
};

/// Named rules of GGUF files (tokenizer.ggml.pre).
struct NamedSplit {
  std::string_view name;
  std::vector<std::string> patterns;  ///< one after the other
  bool nfc = false, ignore_merges = false, adds_bos = false;
};
/// Error(model) listing the known names when `name` is not one of them.
const NamedSplit& named_split(std::string_view name, const std::string& where);

/// The rule of GPT-2, which "ByteLevel" means in tokenizer.json.
extern const char* const kGpt2Pattern;

}  // namespace bantam
