// SPDX-License-Identifier: Apache-2.0
#include "decoder.h"

#include "../../kernels/error.h"
#include "byte_level.h"
#include "json_file.h"
#include "regex.h"
#include "stage_json.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    out += text.substr(done, at - done);
    out += to;
  }
  return out += text.substr(done);
}

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string out;
    for (const std::string& t : tokens) out += alphabet_to_bytes(t).value_or(t);
    tokens.assign(1, std::move(out));
  }
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string sign, bool prepends) : sign_(std::move(sign)), prepends_(prepends) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = replaced(tokens[i], sign_, i == 0 && prepends_ ? "" : " ");
  }

 private:
  std::string sign_;
  bool prepends_;
};

class ByteFallbackDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    bool in_bytes = false;
    for (std::string& t : tokens) {
      const int byte = byte_of(t);
      if (byte >= 0 && in_bytes) {
        out.back().push_back(static_cast<char>(byte));
      } else {
        out.push_back(byte >= 0 ? std::string(1, static_cast<char>(byte)) : std::move(t));
      }
      in_bytes = byte >= 0;
    }
    tokens.swap(out);
  }

 private:
  static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  }
  // Rust reads "+5" as a number too.
  static int byte_of(const std::string& t) {
    if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return -1;
    const int high = t[3] == '+' ? 0 : digit(t[3]), low = digit(t[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
};

class FuseDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string out;
    for (const std::string& t : tokens) out += t;
    tokens.assign(1, std::move(out));
  }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      std::string_view rest = t;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      t = std::string(rest);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) t = replaced(t, from_, to_);
  }

 private:
  std::string from_, to_;
};

class RegexDecoder final : public Decoder {
 public:
  RegexDecoder(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      std::string out;
      for (std::string_view rest = t; !rest.empty();) {
        const size_t valid = utf8_valid_prefix(rest);
        out += regex_.replace(rest.substr(0, valid), to_);
        rest.remove_prefix(valid);
        if (rest.empty()) break;
        out.push_back(rest[0]);
        rest.remove_prefix(1);
      }
      t = std::move(out);
    }
  }

 private:
  Regex regex_;
  std::string to_;
};

// The sign at the end of a word becomes a space, but for the last token's.
class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], suffix_, i + 1 < tokens.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

std::unique_ptr<Decoder> read_one(const json& j, const std::string& at) {
  const std::string type = stage_type(j, at);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Metaspace") {
    const bool never = json_text(j, "prepend_scheme", at).value_or("always") == "never" ||
                       !json_bool(j, "add_prefix_space", at).value_or(true);
    return std::make_unique<MetaspaceDecoder>(need_character(j, "replacement", at), !never);
  }
  if (type == "Strip") {
    const auto count = [&](const char* key) {
      const int64_t n = json_integer(j, key, at).value_or(-1);
      if (n < 0) throw Error(ErrorCode::model, str(at, ": ", key, ": expected how many to take away"));
      return static_cast<size_t>(n);
    };
    return std::make_unique<StripDecoder>(need_character(j, "content", at), count("start"), count("stop"));
  }
  if (type == "Replace") {
    std::string to = need_content(j, "content", at);
    StagePattern pattern = read_pattern(j, at);
    if (pattern.regex) return std::make_unique<RegexDecoder>(Regex(pattern.text, at), std::move(to));
    return std::make_unique<ReplaceDecoder>(std::move(pattern.text), std::move(to));
  }
  if (type == "BPEDecoder") {
    std::string suffix = json_text(j, "suffix", at).value_or("</w>");
    if (suffix.empty()) throw Error(ErrorCode::model, str(at, ": an empty suffix"));
    return std::make_unique<BpeDecoder>(std::move(suffix));
  }
  throw Error(ErrorCode::model,
              str(at, ": decoder ", printable(type), " is not supported (known: ByteLevel, Metaspace, ",
                  "ByteFallback, Fuse, Strip, Replace, BPEDecoder, Sequence)"));
}

}  // namespace

std::string Decoders::apply(std::vector<std::string> tokens) const {
  const auto bytes = [&] {
    size_t n = 0;
    for (const std::string& t : tokens) n += t.size();
    return n;
  };
  const size_t before = bytes();
  for (const auto& step : steps_) {
    step->apply(tokens);
    check_growth(before, bytes(), where_);
  }
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && steps_.empty()) out += ' ';
    out += tokens[i];
  }
  return out;
}

Decoders byte_level_decoder() {
  Decoders out;
  out.add(std::make_unique<ByteLevelDecoder>());
  out.only_bytes = true;
  return out;
}

Decoders read_decoder(const json* j, const std::string& where) {
  Decoders out(str(where, ": decoder"));
  std::vector<std::string> types;
  for_each_part(j, "decoders", str(where, ": decoder"), [&](const json& part, const std::string& at) {
    types.push_back(stage_type(part, at));
    out.add(read_one(part, at));
  });
  out.only_bytes = types == std::vector<std::string>{"ByteLevel"};
  return out;
}

}  // namespace bantam
