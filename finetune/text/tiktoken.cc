// SPDX-License-Identifier: Apache-2.0
// Vocabularies of tiktoken: lines of "base64 rank". Such a file says neither how text is split into words nor what its
// control tokens are; both are known for some vocabularies by their content, or stand beside in tiktoken.json.
#include <charconv>

#include "../../kernels/error.h"
#include "base64.h"
#include "byte_ranks.h"
#include "json_file.h"
#include "named_split.h"
#include "stage_json.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

// Fingerprints of whole vocabularies.
constexpr uint64_t kLlama3 = 0x7E596249D631B709u, kQwen = 0xD81BAF1BF6CC7CEDu, kQwen35 = 0x95C7073490D3989Du;

[[noreturn]] void fail(const std::string& where, const std::string& what, std::string hint = {}) {
  throw Error(ErrorCode::model, str(where, ": ", what), std::move(hint));
}

struct Ranks {
  ByteRanks list;
  uint64_t fingerprint = 0xCBF29CE484222325u;  // FNV-1a of bytes and ranks, in the order of the file
};

void add_to_fingerprint(uint64_t& hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
}

Ranks read_ranks(std::string_view text, const std::string& where) {
  Ranks out;
  for (size_t line = 1; !text.empty(); ++line) {
    std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    const std::string at = str(where, ":", line);
    const size_t space = row.find(' ');
    if (space == std::string_view::npos) fail(at, "expected a token in base64 and its rank");
    const std::string_view number = row.substr(space + 1);
    int64_t rank = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (error != std::errc() || end != number.data() + number.size() || rank < 0 || rank > kMostTokenId) {
      fail(at, str("expected a rank of 0 to ", kMostTokenId, ", found '", printable(number, 40), "'"));
    }
    switch (out.list.add(row.substr(0, space), rank)) {
      case ByteRanks::Added::bad_base64:
        fail(at, "expected a token in base64");
      case ByteRanks::Added::same_rank:
        fail(at, str("rank ", rank, " is there twice"));
      case ByteRanks::Added::same_token:
        fail(at, "the token is there twice");
      case ByteRanks::Added::yes:
        break;
    }
    add_to_fingerprint(out.fingerprint, out.list.bytes()[static_cast<size_t>(rank)]);
    add_to_fingerprint(out.fingerprint, str(" ", rank, "\n"));
  }
  const size_t most = out.list.bytes().size();
  if (most == 0) fail(where, "the vocabulary is empty");
  if (!plausible_id(static_cast<int64_t>(most), out.list.size())) {
    fail(where, str("ranks go up to ", most - 1, ", there are ", out.list.size(), " tokens"));
  }
  return out;
}

struct Family {
  std::string pattern;
  bool nfc = false, adds_bos = false;
  std::vector<std::pair<std::string, int32_t>> specials;
  std::string bos, eos;
};

Family llama3() {
  Family f{.pattern = named_split("llama-bpe", "").patterns[0],
           .adds_bos = true,
           .bos = "<|begin_of_text|>",
           .eos = "<|end_of_text|>"};
  int32_t id = 128000, reserved = 0;
  const auto reserve = [&](int n) {
    for (; n > 0; --n) f.specials.emplace_back(str("<|reserved_special_token_", reserved++, "|>"), id++);
  };
  for (const char* name : {"<|begin_of_text|>", "<|end_of_text|>"}) f.specials.emplace_back(name, id++);
  reserve(4);
  for (const char* name : {"<|start_header_id|>", "<|end_header_id|>"}) f.specials.emplace_back(name, id++);
  reserve(1);
  f.specials.emplace_back("<|eot_id|>", id++);
  reserve(246);
  return f;
}

Family qwen() {
  Family f{.pattern = named_split("qwen2", "").patterns[0], .nfc = true, .eos = "<|endoftext|>"};
  int32_t id = 151643;
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) f.specials.emplace_back(name, id++);
  for (int i = 0; i < 205; ++i) f.specials.emplace_back(str("<|extra_", i, "|>"), id++);
  return f;
}

Family qwen35() {
  Family f{.pattern = named_split("qwen35", "").patterns[0], .nfc = true, .eos = "<|endoftext|>"};
  int32_t id = 248044;
  for (const char* name : {"<|endoftext|>",
                           "<|im_start|>",
                           "<|im_end|>",
                           "<|object_ref_start|>",
                           "<|object_ref_end|>",
                           "<|box_start|>",
                           "<|box_end|>",
                           "<|quad_start|>",
                           "<|quad_end|>",
                           "<|vision_start|>",
                           "<|vision_end|>",
                           "<|vision_pad|>",
                           "<|image_pad|>",
                           "<|video_pad|>",
                           "<tool_call>",
                           "</tool_call>",
                           "<|fim_prefix|>",
                           "<|fim_middle|>",
                           "<|fim_suffix|>",
                           "<|fim_pad|>",
                           "<|repo_name|>",
                           "<|file_sep|>",
                           "<tool_response>",
                           "</tool_response>",
                           "<think>",
                           "</think>",
                           "<|audio_start|>",
                           "<|audio_end|>",
                           "<tts_pad>",
                           "<tts_text_bos>",
                           "<tts_text_eod>",
                           "<tts_text_bos_single>",
                           "<|audio_pad|>"}) {
    f.specials.emplace_back(name, id++);
  }
  return f;
}

// tiktoken.json: {"pattern": regex, "special_tokens": {text: id}, "nfc": false, "bos_token": text, "eos_token": text}.
Family read_beside(const fs::path& path) {
  const std::string where = path.string();
  const auto j = parse_json(read_text_file(path), where);
  Family out{.pattern = need_text(j, "pattern", where), .nfc = json_bool(j, "nfc", where).value_or(false)};
  out.bos = json_text(j, "bos_token", where).value_or("");
  out.eos = json_text(j, "eos_token", where).value_or("");
  out.adds_bos = json_bool(j, "add_bos_token", where).value_or(false);
  const auto* specials = json_find(j, "special_tokens", where);
  if (specials == nullptr) return out;
  if (!specials->is_object()) fail(where, "special_tokens: expected an object of ids");
  for (const auto& [text, id] : specials->items()) {
    if (!id.is_number_integer() || id < 0 || id > kMostTokenId) {
      fail(where, str("special_tokens: '", printable(text), "': expected an id of 0 to ", kMostTokenId));
    }
    out.specials.emplace_back(text, id.get<int32_t>());
  }
  return out;
}

Family find_family(const fs::path& path, const Ranks& ranks) {
  std::error_code ec;
  if (const fs::path beside = path.parent_path() / "tiktoken.json"; fs::exists(beside, ec)) return read_beside(beside);
  switch (ranks.fingerprint) {
    case kLlama3:
      return llama3();
    case kQwen:
      return qwen();
    case kQwen35:
      return qwen35();
    default:
      fail(path.string(),
           str("a tiktoken vocabulary of ", ranks.list.size(),
               " tokens that is not known (known: Llama 3, Qwen, Qwen 3.5)"),
           "use a folder with the model's tokenizer.json, or put a tiktoken.json with its pattern beside");
  }
}

}  // namespace

bool looks_like_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  return base64_decode(line.substr(0, space)).has_value() &&
         line.substr(space + 1).find_first_not_of("0123456789\r") == std::string_view::npos;
}

fs::path find_tiktoken(const fs::path& folder) {
  fs::path out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    if (entry.path().extension() != ".tiktoken") continue;
    if (!out.empty()) fail(folder.string(), "more than one .tiktoken file");
    out = entry.path();
  }
  return out;
}

PipelineParts read_tiktoken(const fs::path& path, const TokenizerConfig& config) {
  PipelineParts parts;
  parts.where = path.string();
  const Ranks ranks = read_ranks(read_text_file(path), parts.where);
  const Family family = find_family(path, ranks);
  parts.model = make_rank_model(ranks.list, 0, parts.where);
  if (family.nfc) parts.normalizer.add(make_nfc_current());
  parts.pre_tokenizer.add(make_isolated_split(Regex(family.pattern, parts.where)));
  parts.pre_tokenizer.ends_in_bytes = true;
  parts.decoder = byte_level_decoder();
  parts.added = config.added;
  if (parts.added.empty()) {
    for (const auto& [text, id] : family.specials) parts.added.push_back({.id = id, .content = text, .special = true});
  }
  const auto id_of = [&](const std::string& text, const char* what) {
    if (text.empty()) return -1;
    for (const AddedToken& t : parts.added) {
      if (t.content == text) return t.id;
    }
    fail(parts.where, str(what, " '", printable(text), "' is not among the control tokens"));
  };
  parts.bos = id_of(config.bos.value_or(family.bos), "bos_token");
  parts.eos = id_of(config.eos.value_or(family.eos), "eos_token");
  const bool bos = config.adds_bos.value_or(family.adds_bos), eos = config.adds_eos.value_or(false);
  if ((bos && parts.bos < 0) || (eos && parts.eos < 0)) {
    fail(parts.where, "BOS or EOS is to be added, but there is none");
  }
  if (bos) parts.post_processor.prefix = {parts.bos};
  if (eos) parts.post_processor.suffix = {parts.eos};
  return parts;
}

}  // namespace bantam
