// SPDX-License-Identifier: Apache-2.0
// Byte-level vocabularies inside GGUF files.
#include "../../kernels/error.h"
#include "bpe.h"
#include "named_split.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::ordered_json;

int32_t token_at(const GgufFile& file, const char* key, size_t tokens) {
  const auto id = file.find_integer(key);
  if (!id) return -1;
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens) {
    throw Error(ErrorCode::model,
                str(file.path().string(), ": ", key, " is ", *id, ", the vocabulary has ", tokens, " tokens"));
  }
  return static_cast<int32_t>(*id);
}

ordered_json added_json(const AddedToken& t) {
  return {{"id", t.id},         {"content", t.content},       {"single_word", false}, {"lstrip", t.lstrip},
          {"rstrip", t.rstrip}, {"normalized", t.normalized}, {"special", t.special}};
}

ordered_json template_json(const PostProcessor& around, const GgufVocabulary& v) {
  ordered_json single = ordered_json::array(), pair = ordered_json::array(), special = ordered_json::object();
  for (const char* part : {"A", "B"}) {
    const int type = part[0] - 'A';
    const auto put = [&](const ordered_json& item) {
      if (type == 0) single.push_back(item);
      pair.push_back(item);
    };
    const auto put_tokens = [&](const std::vector<int32_t>& ids) {
      for (const int32_t id : ids) {
        const std::string& text = v.tokens[static_cast<size_t>(id)];
        put({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
        special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
      }
    };
    put_tokens(around.prefix);
    put({{"Sequence", {{"id", part}, {"type_id", type}}}});
    put_tokens(around.suffix);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

std::string write_tokenizer_json(const PipelineParts& parts, const BpeParts& bpe, const NamedSplit& split,
                                 const GgufVocabulary& v) {
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  ordered_json steps = ordered_json::array();
  for (const std::string& pattern : split.patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level);
  ordered_json j;
  j["version"] = "1.0";
  j["truncation"] = nullptr;
  j["padding"] = nullptr;
  j["added_tokens"] = ordered_json::array();
  for (const AddedToken& t : parts.added) j["added_tokens"].push_back(added_json(t));
  j["normalizer"] = split.nfc ? ordered_json({{"type", "NFC"}}) : ordered_json(nullptr);
  j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  j["post_processor"] = parts.post_processor.prefix.empty() && parts.post_processor.suffix.empty()
                            ? byte_level
                            : template_json(parts.post_processor, v);
  j["decoder"] = byte_level;
  // As a std::map first: an ordered object looks for each key among all before it.
  nlohmann::json vocab = nlohmann::json::object();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (!v.tokens[id].empty()) vocab[v.tokens[id]] = id;
  }
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& [left, right] : bpe.merges) merges.push_back({left, right});
  nlohmann::json model = {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", bpe.ignore_merges}};
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  // Written apart and put in at the end, so that the large part is not copied into the ordered object.
  std::string text = j.dump(1, ' ');
  text.erase(text.find_last_of('}'));
  while (text.back() == '\n') text.pop_back();
  return text + ",\n \"model\": " + model.dump() + "\n}\n";
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
  const std::string where = file.path().string();
  GgufVocabulary out;
  const auto tokens = file.text_array("tokenizer.ggml.tokens");
  if (tokens.empty() || tokens.size() > static_cast<size_t>(kMostTokenId)) {
    throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.tokens holds ", tokens.size(), " tokens"));
  }
  out.tokens.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    if (!utf8_valid(token)) {
      throw Error(ErrorCode::model,
                  str(where, ": token ", out.tokens.size(), " ('", printable(token), "') is not UTF-8"));
    }
    out.tokens.emplace_back(token);
  }
  out.types.assign(tokens.size(), kGgufNormal);
  if (file.has("tokenizer.ggml.token_type")) {
    const auto types = file.integer_array("tokenizer.ggml.token_type");
    if (types.size() != tokens.size()) {
      throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.token_type holds ", types.size(), " types for ",
                                        tokens.size(), " tokens"));
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] < kGgufNormal || types[i] > kGgufByte) {
        throw Error(ErrorCode::model,
                    str(where, ": tokenizer.ggml.token_type[", i, "] is ", types[i], ", expected 1 to 6"));
      }
      out.types[i] = static_cast<int32_t>(types[i]);
    }
  }
  out.bos = token_at(file, "tokenizer.ggml.bos_token_id", tokens.size());
  out.eos = token_at(file, "tokenizer.ggml.eos_token_id", tokens.size());
  out.unk = token_at(file, "tokenizer.ggml.unknown_token_id", tokens.size());
  out.adds_bos = file.find_boolean("tokenizer.ggml.add_bos_token");
  out.adds_eos = file.find_boolean("tokenizer.ggml.add_eos_token");
  out.chat_template = file.find_text("tokenizer.chat_template").value_or("");
  return out;
}

std::string write_tokenizer_config(const GgufVocabulary& v, const char* tokenizer_class, bool adds_bos, bool adds_eos) {
  ordered_json j;
  j["tokenizer_class"] = tokenizer_class;
  j["add_bos_token"] = adds_bos;
  j["add_eos_token"] = adds_eos;
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0) j[key] = v.tokens[static_cast<size_t>(id)];
  };
  name("bos_token", v.bos);
  name("eos_token", v.eos);
  name("unk_token", v.unk);
  j["clean_up_tokenization_spaces"] = false;
  if (!v.chat_template.empty()) j["chat_template"] = v.chat_template;
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

PipelineParts read_gguf_bpe(const GgufFile& file) {
  const std::string where = file.path().string();
  const GgufVocabulary v = read_gguf_vocabulary(file);
  if (!file.has("tokenizer.ggml.pre")) {
    throw Error(ErrorCode::model,
                str(where, ": no tokenizer.ggml.pre: the file does not say how text is split into words"),
                "convert the model again with a current converter, or use its original folder");
  }
  const NamedSplit& split = named_split(file.text("tokenizer.ggml.pre"), where);
  PipelineParts parts;
  BpeParts bpe;
  parts.where = bpe.where = where;
  bpe.bytes = true;
  bpe.tokens = v.tokens;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const int32_t type = v.types[i];
    if (type == kGgufNormal || type == kGgufByte || v.tokens[i].empty()) continue;
    bpe.tokens[i].clear();  // found in the text, not made by merges
    if (type == kGgufUnused) continue;
    parts.added.push_back({.id = static_cast<int32_t>(i), .content = v.tokens[i], .special = type != kGgufUserDefined});
  }
  const auto merges = file.text_array("tokenizer.ggml.merges");
  if (merges.empty()) throw Error(ErrorCode::model, str(where, ": the merge table is empty"));
  bpe.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    if (!utf8_valid(merges[i])) {
      throw Error(ErrorCode::model, str(where, ": merge ", i, " ('", printable(merges[i]), "') is not UTF-8"));
    }
    bpe.merges.push_back(split_merge(merges[i], i, where));
  }
  bpe.ignore_merges = split.ignore_merges;
  for (const std::string& pattern : split.patterns) parts.pre_tokenizer.add(make_isolated_split(Regex(pattern, where)));
  parts.pre_tokenizer.ends_in_bytes = true;
  if (split.nfc) parts.normalizer.add(make_nfc());
  parts.decoder = byte_level_decoder();
  parts.bos = v.bos;
  parts.eos = v.eos;
  const bool adds_bos = v.adds_bos.value_or(split.adds_bos), adds_eos = v.adds_eos.value_or(false);
  if ((adds_bos && v.bos < 0) || (adds_eos && v.eos < 0)) {
    throw Error(ErrorCode::model, str(where, ": BOS or EOS is to be added, but the file does not name it"));
  }
  if (adds_bos) parts.post_processor.prefix = {v.bos};
  if (adds_eos) parts.post_processor.suffix = {v.eos};
  parts.files = {{"tokenizer.json", write_tokenizer_json(parts, bpe, split, v)},
                 {"tokenizer_config.json", write_tokenizer_config(v, "PreTrainedTokenizerFast", adds_bos, adds_eos)}};
  parts.model = std::make_unique<BpeModel>(std::move(bpe));
  return parts;
}

}  // namespace bantam
