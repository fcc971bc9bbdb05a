// SPDX-License-Identifier: Apache-2.0
#include "normalizer.h"

#include <algorithm>
#include <optional>

#include "../../kernels/error.h"
#include "byte_level.h"
#include "json_file.h"
#include "precompiled.h"
#include "regex.h"
#include "stage_json.h"
#include "unicode.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(std::string& text, Edits* edits) const override {
    if (!is_ascii(text)) text = normalize(text, form_, edits);
  }
  bool keeps_ascii() const override { return true; }

 private:
  NormalForm form_;
};

// One character at a time, each giving any number.
template <class Map>
class ByCharacter final : public Normalizer {
 public:
  explicit ByCharacter(Map map, bool ascii = false) : map_(map), keeps_ascii_(ascii) {}
  void apply(std::string& text, Edits* edits) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      uint32_t c = 0;
      const size_t n = utf8_sequence(rest, &c), before = out.size();
      map_(out, c);
      if (edits != nullptr && std::string_view(out).substr(before) != rest.substr(0, n)) {
        const size_t at = text.size() - rest.size();
        edits->replace(at, at + n, out.size() - before);
      }
      rest.remove_prefix(n);
    }
    text = std::move(out);
  }
  bool keeps_ascii() const override { return keeps_ascii_; }

 private:
  Map map_;
  bool keeps_ascii_;
};

void without_marks(std::string& out, uint32_t c) {
  if (!is_accent(c)) utf8_append(out, c);
}

// SentencePiece's nmt rule: control characters go, odd spaces become spaces.
void nmt(std::string& out, uint32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  utf8_append(out, space ? ' ' : c);
}

class Around final : public Normalizer {
 public:
  Around(std::string before, std::string after) : before_(std::move(before)), after_(std::move(after)) {}
  void apply(std::string& text, Edits* edits) const override {
    if (edits != nullptr) {
      edits->insert_front(text, before_.size());
      edits->insert_back(text, after_.size());
    }
    text.insert(0, before_);
    text += after_;
  }

 private:
  std::string before_, after_;
};

class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string& text, Edits* edits) const override {
    size_t at = text.find(from_);
    if (at == std::string::npos) return;
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    size_t done = 0;
    for (; at != std::string::npos; at = text.find(from_, done)) {
      out.append(text, done, at - done);
      out += to_;
      done = at + from_.size();
      if (edits != nullptr) edits->replace(at, done, to_.size());
    }
    out.append(text, done);
    text = std::move(out);
  }

 private:
  std::string from_, to_;
};

class ReplaceRegex final : public Normalizer {
 public:
  ReplaceRegex(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  void apply(std::string& text, Edits* edits) const override { text = regex_.replace(text, to_, edits); }

 private:
  Regex regex_;
  std::string to_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, Edits* edits) const override {
    size_t begin = std::string::npos, end = 0;
    for (size_t at = 0; at < text.size();) {
      uint32_t c = 0;
      const size_t n = utf8_sequence(std::string_view(text).substr(at), &c);
      if (!is_white_space(c)) {
        begin = std::min(begin, at);
        end = at + n;
      }
      at += n;
    }
    if (begin == std::string::npos) {  // white space alone
      if (left_ || right_) text.clear();
      return;
    }
    if (edits != nullptr && left_) edits->replace(0, begin, 0);
    if (edits != nullptr && right_) edits->replace(end, text.size(), 0);
    if (right_) text.resize(end);
    if (left_) text.erase(0, begin);
  }

 private:
  bool left_, right_;
};

class ByteAlphabet final : public Normalizer {
 public:
  void apply(std::string& text, Edits* edits) const override {
    std::string made = bytes_to_alphabet(text);
    if (edits != nullptr) alphabet_edits(text, made, *edits);
    text = std::move(made);
  }
};

std::unique_ptr<Normalizer> read_one(const json& j, const std::string& at) {
  const std::string type = stage_type(j, at);
  if (type == "NFC") return make_nfc();
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<ByCharacter<decltype(&append_lower)>>(&append_lower);
  if (type == "StripAccents") return std::make_unique<ByCharacter<decltype(&without_marks)>>(&without_marks, true);
  if (type == "Nmt") return std::make_unique<ByCharacter<decltype(&nmt)>>(&nmt);
  if (type == "Prepend") return std::make_unique<Around>(need_content(j, "prepend", at), "");
  if (type == "Append") return std::make_unique<Around>("", need_content(j, "append", at));
  if (type == "Strip") return std::make_unique<Strip>(need_bool(j, "strip_left", at), need_bool(j, "strip_right", at));
  if (type == "ByteLevel") return std::make_unique<ByteAlphabet>();
  if (type == "Precompiled") return read_precompiled(json_text(j, "precompiled_charsmap", at).value_or(""), at);
  if (type == "Replace") {
    std::string to = need_content(j, "content", at);
    StagePattern pattern = read_pattern(j, at);
    if (pattern.regex) return std::make_unique<ReplaceRegex>(Regex(pattern.text, at), std::move(to));
    return std::make_unique<ReplaceText>(std::move(pattern.text), std::move(to));
  }
  throw Error(ErrorCode::model,
              str(at, ": normalizer ", printable(type), " is not supported (known: NFC, NFD, NFKC, NFKD, Lowercase, ",
                  "StripAccents, Nmt, Prepend, Append, Strip, Replace, Precompiled, ByteLevel, Sequence)"));
}

}  // namespace

std::unique_ptr<Normalizer> make_nfc() {
  return std::make_unique<UnicodeForm>(NormalForm::nfc);
}

std::unique_ptr<Normalizer> make_nfc_current() {
  return std::make_unique<UnicodeForm>(NormalForm::nfc_current);
}

bool Normalizers::keeps(std::string_view text) const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& s) { return s->keeps_ascii(); }) &&
         (steps_.empty() || is_ascii(text));
}

void Normalizers::apply(std::string& text, Alignment* alignment) const {
  const size_t before = text.size();
  for (const auto& step : steps_) {
    if (text.empty()) return;
    Edits edits;
    step->apply(text, alignment == nullptr ? nullptr : &edits);
    if (alignment != nullptr) alignment->add(std::move(edits));
    check_growth(before, text.size(), where_);
  }
}

Normalizers read_normalizer(const json* j, const std::string& where) {
  Normalizers out(str(where, ": normalizer"));
  for_each_part(j, "normalizers", str(where, ": normalizer"),
                [&](const json& part, const std::string& at) { out.add(read_one(part, at)); });
  return out;
}

}  // namespace bantam
