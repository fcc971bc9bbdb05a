// SPDX-License-Identifier: Apache-2.0
#include "named_split.h"

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// The letters of DeepSeek LLM's first rule: cased ones.
constexpr const char* kDeepseekLetters =
    R"(A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-)"
    R"(\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-)"
    R"(\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF)"
    R"(\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-)"
    R"(\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC)"
    R"(\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115)"
    R"(\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E)"
    R"(\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-)"
    R"(\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A)"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})";

std::string gpt4(const char* letters, const char* digits, const char* others) {
  return str(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?)", letters, R"(+|)", digits, R"(| ?)", others,
             R"(+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

// Words by case, as GPT-4o and Mistral's Tekken split them.
std::string cased(const char* endings, const char* digits) {
  constexpr const char* kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kStart = R"([^\r\n\p{L}\p{N}]?)";
  return str(kStart, kUpper, "*", kLower, "+", endings, "|", kStart, kUpper, "+", kLower, "*", endings, "|", digits,
             R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

std::vector<NamedSplit> make_table() {
  constexpr const char* kWords = R"([^\s\p{L}\p{N}])";
  const std::string llama3 = gpt4(R"(\p{L})", R"(\p{N}{1,3})", kWords);
  const std::string qwen2 = gpt4(R"(\p{L})", R"(\p{N})", kWords);
  const std::string qwen35 = gpt4(R"([\p{L}\p{M}])", R"(\p{N})", R"([^\s\p{L}\p{M}\p{N}])");
  const std::string gpt4o = cased("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", R"(\p{N}{1,3})");
  const std::string digit = R"(\p{N})";
  const std::string han = R"([\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+)";
  std::vector<NamedSplit> out;
  for (const char* name : {"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"}) {
    out.push_back({.name = name, .patterns = {kGpt2Pattern}});
  }
  for (const char* name : {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"}) {
    out.push_back({.name = name, .patterns = {digit, kGpt2Pattern}});
  }
  out.push_back({.name = "command-r", .patterns = {digit, kGpt2Pattern}, .nfc = true});
  for (const char* name : {"llama-bpe", "llama3", "llama-v3", "falcon3"}) {
    out.push_back({.name = name, .patterns = {llama3}, .ignore_merges = true, .adds_bos = true});
  }
  for (const char* name : {"dbrx", "smaug-bpe"}) out.push_back({.name = name, .patterns = {llama3}});
  for (const char* name : {"qwen2", "deepseek-r1-qwen"}) {
    out.push_back({.name = name, .patterns = {qwen2}, .nfc = true});
  }
  out.push_back({.name = "qwen35", .patterns = {qwen35}, .nfc = true});
  for (const char* name : {"gpt-4o", "llama4"}) out.push_back({.name = name, .patterns = {gpt4o}});
  out.push_back({.name = "tekken", .patterns = {cased("", R"(\p{N})")}, .ignore_merges = true, .adds_bos = true});
  out.push_back({.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, R"([0-9][0-9][0-9])"}});
  out.push_back({.name = "deepseek-llm",
                 .patterns = {R"([\r\n])", str(R"(\s?[)", kDeepseekLetters, "]+"),
                              R"(\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+)", R"(\s+$)", han,
                              R"(\p{N}+)"}});
  out.push_back({.name = "deepseek-coder", .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", han, digit}});
  out.push_back({.name = "deepseek-v3",
                 .patterns = {R"(\p{N}{1,3})", R"([\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+)",
                              R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                              R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}});
  out.push_back({.name = "chameleon",
                 .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", digit,
                              R"([\p{P}!-/:-@\[-`{-~])", kGpt2Pattern},
                 .adds_bos = true});
  return out;
}

}  // namespace

const NamedSplit& named_split(std::string_view name, const std::string& where) {
  static const std::vector<NamedSplit> known = make_table();
  for (const NamedSplit& n : known) {
    if (n.name == name) return n;
  }
  std::string names;
  for (const NamedSplit& n : known) names += str(names.empty() ? "" : ", ", n.name);
  throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.pre is '", printable(name), "', known are ", names),
              "use the model's original folder with its tokenizer.json");
}

}  // namespace bantam
