// SPDX-License-Identifier: Apache-2.0
#include "pre_tokenizer.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "byte_level.h"
#include "json_file.h"
#include "named_split.h"
#include "split_spans.h"
#include "stage_json.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

// A step that cuts pieces by spans: find(text, spans) appends matches and gaps.
template <class Find>
class SpanSplit final : public PreTokenizer {
 public:
  SpanSplit(Find find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    std::vector<Span> spans;
    bool at_start = false;
    for (size_t i = 0; i < pieces.list.size(); ++i) {
      const std::string_view piece = pieces.list[i];
      spans.clear();
      find_(piece, spans);
      if (invert_) {
        for (Span& s : spans) s.match = !s.match;
      }
      apply_behavior(spans, behavior_);
      const size_t before = out.size();
      for (const Span& s : spans) {
        if (s.end > s.begin) out.push_back(piece.substr(s.begin, s.end - s.begin));
      }
      if (i == 0) at_start = pieces.at_start && out.size() > before && out[before].data() == piece.data();
    }
    pieces.list.swap(out);
    pieces.at_start = at_start;
  }

 private:
  Find find_;
  SplitBehavior behavior_;
  bool invert_;
};

template <class Find>
std::unique_ptr<PreTokenizer> make_split(Find find, SplitBehavior behavior, bool invert = false) {
  return std::make_unique<SpanSplit<Find>>(std::move(find), behavior, invert);
}

// Each character of a class is a match.
template <class Is>
std::unique_ptr<PreTokenizer> split_characters(Is is, SplitBehavior behavior) {
  return make_split([is](std::string_view text, std::vector<Span>& out) { find_characters(text, is, out); }, behavior);
}

std::unique_ptr<PreTokenizer> split_regex(Regex regex, SplitBehavior behavior, bool invert = false) {
  if (behavior == SplitBehavior::isolated) return make_isolated_split(std::move(regex));
  return make_split(
      [regex = std::move(regex)](std::string_view text, std::vector<Span>& out) { regex.find(text, out); }, behavior,
      invert);
}

class IsolatedSplit final : public PreTokenizer {
 public:
  explicit IsolatedSplit(Regex regex) : regex_(std::move(regex)) {}
  void apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    out.reserve(pieces.list.size() * 2);
    for (const std::string_view piece : pieces.list) regex_.isolate(piece, out);
    pieces.list.swap(out);
  }

 private:
  Regex regex_;
};

// ByteLevel's add_prefix_space: each piece that does not start with a space gets one.
class PrefixSpace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    for (std::string_view& piece : pieces.list) {
      if (piece.front() == ' ') continue;
      Pieces::Made& made = pieces.make(piece);
      made.text = str(" ", piece);
      if (pieces.traced) made.edits.insert_front(piece, 1);
      piece = made.text;
    }
  }
};

class ByteAlphabet final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    for (std::string_view& piece : pieces.list) {
      Pieces::Made& made = pieces.make(piece);
      made.text = bytes_to_alphabet(piece);
      if (pieces.traced) alphabet_edits(piece, made.text, made.edits);
      piece = made.text;
    }
  }
};

// Spaces become the sign, the sign is put first, and each piece starts with one.
class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string sign, Prepend prepend, bool split) : sign_(std::move(sign)), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    std::vector<Span> spans;
    for (size_t i = 0; i < pieces.list.size(); ++i) {
      const std::string_view piece = pieces.list[i];
      Pieces::Made& made = pieces.make(piece);
      std::string& text = made.text;
      const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && i == 0 && pieces.at_start);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(sign_)) {
        text = sign_;
        if (pieces.traced) made.edits.insert_front(piece, sign_.size());
      }
      for (size_t k = 0; k < piece.size(); ++k) {
        piece[k] == ' ' ? void(text += sign_) : text.push_back(piece[k]);
        if (pieces.traced && piece[k] == ' ') made.edits.replace(k, k + 1, sign_.size());
      }
      if (!split_) {
        out.emplace_back(text);
        continue;
      }
      spans.clear();
      uint32_t sign = 0;
      utf8_sequence(sign_, &sign);
      find_characters(
          text, [sign](uint32_t c) { return c == sign; }, spans);
      apply_behavior(spans, SplitBehavior::merged_with_next);
      for (const Span& s : spans) out.push_back(std::string_view(text).substr(s.begin, s.end - s.begin));
    }
    pieces.list.swap(out);
  }

 private:
  std::string sign_;
  Prepend prepend_;
  bool split_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(Pieces& pieces) const override {
    std::vector<std::string_view> out;
    for (std::string_view piece : pieces.list) {
      while (!piece.empty()) {
        size_t end = 0;
        for (size_t n = 0; n < length_ && end < piece.size(); ++n) end += utf8_sequence(piece.substr(end));
        out.push_back(piece.substr(0, end));
        piece.remove_prefix(end);
      }
    }
    pieces.list.swap(out);
  }

 private:
  size_t length_;
};

[[noreturn]] void fail(const std::string& at, const std::string& what) {
  throw Error(ErrorCode::model, str(at, ": ", what));
}

SplitBehavior read_behavior(const json& j, const std::string& at, const char* otherwise) {
  const std::string name = json_text(j, "behavior", at).value_or(otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail(at, str("behavior '", printable(name),
               "' is not known (known: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous)"));
}

std::unique_ptr<PreTokenizer> read_metaspace(const json& j, const std::string& at) {
  std::string sign = need_character(j, "replacement", at);
  const std::string scheme = json_text(j, "prepend_scheme", at).value_or("always");
  auto prepend = Metaspace::Prepend::always;
  if (scheme == "first") {
    prepend = Metaspace::Prepend::first;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::never;
  } else if (scheme != "always") {
    fail(at, str("prepend_scheme '", printable(scheme), "' is not known (known: always, first, never)"));
  }
  // The older spelling.
  if (!json_bool(j, "add_prefix_space", at).value_or(true)) {
    if (j.contains("prepend_scheme") && scheme != "never") fail(at, "add_prefix_space contradicts prepend_scheme");
    prepend = Metaspace::Prepend::never;
  }
  return std::make_unique<Metaspace>(std::move(sign), prepend, json_bool(j, "split", at).value_or(true));
}

void read_byte_level(const json& j, const std::string& at, PreTokenizers& out) {
  if (json_bool(j, "add_prefix_space", at).value_or(true)) out.add(std::make_unique<PrefixSpace>());
  if (json_bool(j, "use_regex", at).value_or(true)) out.add(make_isolated_split(Regex(kGpt2Pattern, at)));
}

void read_one(const json& j, const std::string& at, PreTokenizers& out) {
  const std::string type = stage_type(j, at);
  if (type == "Split") {
    StagePattern pattern = read_pattern(j, at);
    const SplitBehavior behavior = read_behavior(j, at, "");
    Regex regex = pattern.regex ? Regex(pattern.text, at) : Regex::literal(pattern.text, at);
    return out.add(split_regex(std::move(regex), behavior, json_bool(j, "invert", at).value_or(false)));
  }
  if (type == "Digits") {
    const bool each = json_bool(j, "individual_digits", at).value_or(false);
    return out.add(split_characters(&is_number, each ? SplitBehavior::isolated : SplitBehavior::contiguous));
  }
  if (type == "Metaspace") return out.add(read_metaspace(j, at));
  if (type == "Punctuation") return out.add(split_characters(&is_punctuation, read_behavior(j, at, "Isolated")));
  if (type == "WhitespaceSplit") return out.add(split_characters(&is_white_space, SplitBehavior::removed));
  if (type == "Whitespace") {
    return out.add(make_split(&find_words, SplitBehavior::removed));
  }
  if (type == "BertPreTokenizer") {
    out.add(split_characters(&is_white_space, SplitBehavior::removed));
    return out.add(split_characters(&is_punctuation, SplitBehavior::isolated));
  }
  if (type == "UnicodeScripts") return out.add(make_split(&find_scripts, SplitBehavior::removed));
  if (type == "CharDelimiterSplit") {
    uint32_t delimiter = 0;
    utf8_sequence(need_character(j, "delimiter", at), &delimiter);
    return out.add(split_characters([delimiter](uint32_t c) { return c == delimiter; }, SplitBehavior::removed));
  }
  if (type == "FixedLength") {
    const int64_t length = json_integer(j, "length", at).value_or(5);
    if (length < 1) fail(at, str("length is ", length));
    return out.add(std::make_unique<FixedLength>(static_cast<size_t>(length)));
  }
  fail(at, str("pre_tokenizer ", printable(type), " is not supported (known: Split, ByteLevel, Digits, Metaspace, ",
               "Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, UnicodeScripts, CharDelimiterSplit, "
               "FixedLength, Sequence)"));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_isolated_split(Regex regex) {
  return std::make_unique<IsolatedSplit>(std::move(regex));
}

PreTokenizers read_pre_tokenizer(const json* j, bool bytes, const std::string& where) {
  std::vector<std::pair<const json*, std::string>> parts;
  for_each_part(j, "pretokenizers", str(where, ": pre_tokenizer"),
                [&](const json& part, const std::string& at) { parts.emplace_back(&part, at); });
  PreTokenizers out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [part, at] = parts[i];
    if (stage_type(*part, at) != "ByteLevel") {
      read_one(*part, at, out);
      continue;
    }
    for (size_t k = 0; k < i; ++k) {
      if (stage_type(*parts[k].first, at) == "ByteLevel") fail(at, "ByteLevel a second time");
    }
    read_byte_level(*part, at, out);
    if (bytes && i + 1 == parts.size()) {
      out.ends_in_bytes = true;
    } else {
      out.add(std::make_unique<ByteAlphabet>());
    }
  }
  return out;
}

}  // namespace bantam
