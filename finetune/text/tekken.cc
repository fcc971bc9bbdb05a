// SPDX-License-Identifier: Apache-2.0
// Mistral's tekken.json: a list of byte strings in order of rank, the expression that splits text into words, and
// control tokens, whose ids come before those of the list.
#include <unordered_set>

#include "../../kernels/error.h"
#include "byte_ranks.h"
#include "json_file.h"
#include "stage_json.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::model, str(where, ": ", what));
}

// Files of before version 11 may leave their control tokens out; these are meant.
constexpr const char* kOlderControls[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

size_t need_count(const json& j, const char* key, const std::string& at) {
  const auto n = json_integer(j, key, at);
  if (!n || *n < 0 || *n > kMostTokenId) fail(at, str(key, ": expected a number of 0 to ", kMostTokenId));
  return static_cast<size_t>(*n);
}

// The control tokens by id; those that the file does not name have names made of their ids.
std::vector<std::string> read_controls(const json& j, const std::string& version, size_t count,
                                       const std::string& where) {
  std::vector<std::string> out;
  if (const json* list = json_find(j, "special_tokens", where)) {
    if (!list->is_array() || list->size() > count)
      fail(where, str("special_tokens: expected a list of at most ", count));
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string at = str(where, ": special_tokens[", i, "]");
      if (json_integer((*list)[i], "rank", at) != static_cast<int64_t>(i)) fail(at, str("expected rank ", i));
      out.push_back(need_text((*list)[i], "token_str", at));
    }
  } else if (version == "v1" || version == "v2" || version == "v3" || version == "v7") {
    out.assign(std::begin(kOlderControls), std::end(kOlderControls));
    if (out.size() > count) fail(where, str("config.default_num_special_tokens is ", count, ", expected ", out.size()));
  } else {
    fail(where, str("no special_tokens, which a file of version '", printable(version, 40), "' has"));
  }
  while (out.size() < count) out.push_back(str("<SPECIAL_", out.size(), ">"));
  std::unordered_set<std::string_view> seen;
  for (const std::string& text : out) {
    if (text.empty()) fail(where, "special_tokens: an empty token");
    if (!seen.insert(text).second) fail(where, str("special_tokens: '", printable(text), "' is there twice"));
  }
  return out;
}

ByteRanks read_vocab(const json& j, size_t count, const std::string& where) {
  const json* vocab = json_find(j, "vocab", where);
  if (vocab == nullptr || !vocab->is_array() || vocab->size() < count) {
    fail(where, str("vocab: expected a list of at least ", count, " tokens"));
  }
  ByteRanks out;
  for (size_t i = 0; i < count; ++i) {
    const std::string at = str(where, ": vocab[", i, "]");
    if (json_integer((*vocab)[i], "rank", at) != static_cast<int64_t>(i)) fail(at, str("expected rank ", i));
    const auto added = out.add(need_text((*vocab)[i], "token_bytes", at), static_cast<int64_t>(i));
    if (added == ByteRanks::Added::same_token) fail(at, "the token is there twice");
    if (added != ByteRanks::Added::yes) fail(at, "token_bytes: expected a token in base64");
  }
  return out;
}

}  // namespace

PipelineParts read_tekken(const json& j, const TokenizerConfig& config, const std::string& where) {
  PipelineParts parts;
  parts.where = where;
  const std::string at = where + ": config";
  const json* settings = json_find(j, "config", where);
  if (settings == nullptr || !settings->is_object()) fail(where, "no config: not a tekken.json");
  const size_t size = need_count(*settings, "default_vocab_size", at);
  const size_t controls = need_count(*settings, "default_num_special_tokens", at);
  if (controls >= size) fail(at, str("default_vocab_size is ", size, ", of which ", controls, " are control tokens"));
  const auto names = read_controls(j, json_text(*settings, "version", at).value_or(""), controls, where);
  for (size_t id = 0; id < names.size(); ++id) {
    parts.added.push_back({.id = static_cast<int32_t>(id), .content = names[id], .special = true});
  }
  parts.model = make_rank_model(read_vocab(j, size - controls, where), static_cast<int32_t>(controls), where);
  parts.pre_tokenizer.add(make_isolated_split(Regex(need_text(*settings, "pattern", at), at)));
  parts.pre_tokenizer.ends_in_bytes = true;
  parts.decoder = byte_level_decoder();
  const auto id_of = [&](const std::string& text) {
    for (const AddedToken& t : parts.added) {
      if (t.content == text) return t.id;
    }
    fail(where, str("'", printable(text), "' is not among the control tokens"));
  };
  parts.bos = id_of(config.bos.value_or("<s>"));
  parts.eos = id_of(config.eos.value_or("</s>"));
  if (config.adds_bos.value_or(true)) parts.post_processor.prefix = {parts.bos};
  if (config.adds_eos.value_or(false)) parts.post_processor.suffix = {parts.eos};
  return parts;
}

}  // namespace bantam
