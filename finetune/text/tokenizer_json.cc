// SPDX-License-Identifier: Apache-2.0
// tokenizer.json with a byte-level vocabulary. What the file asks for is done, or the file is refused by name.
#include <algorithm>

#include "../../kernels/error.h"
#include "json_file.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

constexpr const char* kSupported =
    "supported are tokenizer.json with byte-level BPE, SentencePiece tokenizer.model, and GGUF vocabularies";

std::string type_of(const json& j, const std::string& where) {
  const auto type = json_text(j, "type", where);
  if (!type) throw Error(ErrorCode::model, str(where, ": no type"));
  return *type;
}

// The members of a Sequence (under `list_key`), or the object itself.
std::vector<const json*> members(const json* j, const char* list_key, const std::string& where) {
  if (j == nullptr) return {};
  if (type_of(*j, where) != "Sequence") return {j};
  const json* list = json_find(*j, list_key, where);
  if (list == nullptr || !list->is_array())
    throw Error(ErrorCode::model, str(where, ": ", list_key, ": expected a list"));
  std::vector<const json*> out;
  for (const json& m : *list) {
    const auto inner = members(&m, list_key, where);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

class Reader {
 public:
  Reader(const json& j, const TokenizerConfig& config, const std::string& where)
      : j_(j), config_(config), where_(where) {
    parts_.where = where;
  }

  BpeParts run() {
    read_model();
    read_normalizer();
    read_pretokenizer();
    read_decoder();
    parts_.added = read_added_tokens(j_, where_);
    add_from_config();
    read_post_processor();
    read_bos_eos();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, std::string hint = {}) const {
    throw Error(ErrorCode::model, str(where_, ": ", what), std::move(hint));
  }

  void read_model() {
    const std::string at = where_ + ": model";
    const json& m = *json_find(j_, "model", where_);
    const json* vocab = json_find(m, "vocab", at);
    if (vocab == nullptr || !vocab->is_object() || vocab->empty()) fail("model.vocab: expected an object of tokens");
    int64_t most = 0;
    for (const auto& [text, id] : vocab->items()) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMostTokenId) {
        fail(str("model.vocab: token '", printable(text), "': expected an id of 0 to ", kMostTokenId));
      }
      most = std::max(most, id.get<int64_t>());
    }
    parts_.tokens.resize(static_cast<size_t>(most) + 1);
    for (const auto& [text, id] : vocab->items()) {
      std::string& slot = parts_.tokens[id.get<size_t>()];
      if (!slot.empty())
        fail(
            str("model.vocab: id ", id.get<int64_t>(), " is both '", printable(slot), "' and '", printable(text), "'"));
      slot = text;
    }
    const json* merges = json_find(m, "merges", at);
    if (merges == nullptr || !merges->is_array() || merges->empty())
      fail("model.merges: expected a list that is not empty");
    for (size_t i = 0; i < merges->size(); ++i) {
      const json& merge = (*merges)[i];
      if (merge.is_string()) {
        parts_.merges.push_back(split_merge(merge.get_ref<const std::string&>(), i, where_));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        parts_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        fail(str("model.merges[", i, "]: expected \"a b\" or [\"a\", \"b\"]"));
      }
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!json_text(m, key, at).value_or("").empty()) fail(str("model.", key, " is not supported"));
    }
    const json* dropout = json_find(m, "dropout", at);
    if (dropout != nullptr && *dropout != 0) fail("model.dropout is not supported");
    parts_.ignore_merges = json_bool(m, "ignore_merges", at).value_or(false);
    parts_.fuse_unk = json_bool(m, "fuse_unk", at).value_or(false);
    if (const auto unk = json_text(m, "unk_token", at)) {
      const auto it = vocab->find(*unk);
      if (it == vocab->end()) fail(str("model.unk_token '", printable(*unk), "' is not in the vocabulary"));
      parts_.unk = it->get<int32_t>();
    }
  }

  void read_normalizer() {
    for (const json* n : members(json_find(j_, "normalizer", where_), "normalizers", where_ + ": normalizer")) {
      const std::string type = type_of(*n, where_ + ": normalizer");
      if (type != "NFC")
        fail(str("normalizer ", printable(type), " is not supported with byte-level BPE (known: NFC)"));
      parts_.nfc = true;
    }
  }

  void add_rule(const std::string& pattern) {
    parts_.patterns.push_back(pattern);
    parts_.pretokenizer.add_rule(SplitRule(pattern, where_));
  }

  void read_pretokenizer() {
    const std::string at = where_ + ": pre_tokenizer";
    const auto steps = members(json_find(j_, "pre_tokenizer", where_), "pretokenizers", at);
    for (size_t i = 0; i < steps.size(); ++i) {
      const json& step = *steps[i];
      const std::string type = type_of(step, at);
      if (type == "ByteLevel") {
        if (i + 1 != steps.size()) fail("pre_tokenizer: ByteLevel must be the last of a Sequence");
        if (json_bool(step, "add_prefix_space", at).value_or(true)) parts_.pretokenizer.add_prefix_space();
        if (json_bool(step, "use_regex", at).value_or(true)) add_rule(kGpt2Pattern);
      } else if (type == "Digits") {
        add_rule(json_bool(step, "individual_digits", at).value_or(false) ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "Split") {
        read_split(step, at);
      } else {
        fail(str("pre_tokenizer ", printable(type),
                 " is not supported (known: ByteLevel, Split, Digits, Sequence of these)"));
      }
    }
  }

  void read_split(const json& step, const std::string& at) {
    const std::string behavior = json_text(step, "behavior", at).value_or("");
    // Matches and gaps both become pieces, so `invert` makes no difference to Isolated.
    if (behavior != "Isolated")
      fail(str("pre_tokenizer: Split with behavior '", printable(behavior), "' is not supported (known: Isolated)"));
    const json* pattern = json_find(step, "pattern", at);
    if (pattern == nullptr || !pattern->is_object()) fail("pre_tokenizer: Split without a pattern");
    if (const auto regex = json_text(*pattern, "Regex", at)) return add_rule(*regex);
    const auto text = json_text(*pattern, "String", at);
    if (!text) fail("pre_tokenizer: Split: expected a pattern with Regex or String");
    SplitRule rule = SplitRule::literal(*text, where_);
    parts_.patterns.push_back(rule.pattern());
    parts_.pretokenizer.add_rule(std::move(rule));
  }

  void read_decoder() {
    for (const json* d : members(json_find(j_, "decoder", where_), "decoders", where_ + ": decoder")) {
      const std::string type = type_of(*d, where_ + ": decoder");
      if (type != "ByteLevel")
        fail(str("decoder ", printable(type), " is not supported with byte-level BPE (known: ByteLevel)"));
    }
  }

  void add_from_config() {
    for (const AddedToken& t : config_.added) {
      const auto known =
          std::find_if(parts_.added.begin(), parts_.added.end(), [&](const AddedToken& a) { return a.id == t.id; });
      if (known == parts_.added.end()) {
        parts_.added.push_back(t);
      } else if (known->content != t.content) {
        fail(str("token ", t.id, " is '", printable(known->content), "' here and '", printable(t.content),
                 "' in tokenizer_config.json"));
      }
    }
  }

  int32_t id_of(const std::string& text, const char* what) const {
    for (const AddedToken& t : parts_.added) {
      if (t.content == text) return t.id;
    }
    const auto it = std::find(parts_.tokens.begin(), parts_.tokens.end(), text);
    if (it == parts_.tokens.end() || text.empty()) fail(str(what, " '", printable(text), "' is not in the vocabulary"));
    return static_cast<int32_t>(it - parts_.tokens.begin());
  }

  void read_post_processor() {
    const std::string at = where_ + ": post_processor";
    for (const json* p : members(json_find(j_, "post_processor", where_), "processors", at)) {
      const std::string type = type_of(*p, at);
      if (type == "ByteLevel") continue;  // moves offsets only
      if (type != "TemplateProcessing") {
        fail(str("post_processor ", printable(type),
                 " is not supported (known: TemplateProcessing, ByteLevel, Sequence of these)"));
      }
      read_template(*p, at);
    }
  }

  void read_template(const json& p, const std::string& at) {
    const json* single = json_find(p, "single", at);
    const json* tokens = json_find(p, "special_tokens", at);
    if (single == nullptr || !single->is_array()) fail("post_processor: single: expected a list");
    std::vector<int32_t> before, after;
    bool text_seen = false;
    for (const json& item : *single) {
      if (json_find(item, "Sequence", at) != nullptr) {
        if (text_seen) fail("post_processor: single names the text twice");
        text_seen = true;
        continue;
      }
      const json* special = json_find(item, "SpecialToken", at);
      const auto name = special == nullptr ? std::nullopt : json_text(*special, "id", at);
      const json* entry = name && tokens != nullptr ? json_find(*tokens, name->c_str(), at) : nullptr;
      const json* ids = entry == nullptr ? nullptr : json_find(*entry, "ids", at);
      if (ids == nullptr || !ids->is_array()) fail("post_processor: single: a special token without ids");
      for (const json& id : *ids) {
        if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMostTokenId)
          fail("post_processor: a token id");
        (text_seen ? after : before).push_back(id.get<int32_t>());
      }
    }
    if (!text_seen) fail("post_processor: single has no place for the text");
    parts_.prefix.insert(parts_.prefix.begin(), before.begin(), before.end());
    parts_.suffix.insert(parts_.suffix.end(), after.begin(), after.end());
  }

  void read_bos_eos() {
    const auto number = [&](std::optional<int64_t> id, const char* what) {
      if (!id) return -1;
      if (*id < 0 || *id > kMostTokenId) fail(str(what, " in config.json is ", *id));
      return static_cast<int32_t>(*id);
    };
    parts_.bos = config_.bos ? id_of(*config_.bos, "bos_token") : number(config_.bos_id, "bos_token_id");
    parts_.eos = config_.eos ? id_of(*config_.eos, "eos_token") : number(config_.eos_id, "eos_token_id");
    if (!config_.adds_bos && !config_.adds_eos) return;
    // Said openly in tokenizer_config.json, it replaces what the post-processor says.
    const bool bos = config_.adds_bos.value_or(false), eos = config_.adds_eos.value_or(false);
    if (bos && parts_.bos < 0) fail("add_bos_token is true, but no bos_token is named");
    if (eos && parts_.eos < 0) fail("add_eos_token is true, but no eos_token is named");
    parts_.prefix = bos ? std::vector<int32_t>{parts_.bos} : std::vector<int32_t>{};
    parts_.suffix = eos ? std::vector<int32_t>{parts_.eos} : std::vector<int32_t>{};
  }

  const json& j_;
  const TokenizerConfig& config_;
  const std::string& where_;
  BpeParts parts_;
};

}  // namespace

std::pair<JsonKind, std::string> tokenizer_json_kind(const json& j, const std::string& where) {
  const json* model = json_find(j, "model", where);
  if (model == nullptr || !model->is_object()) {
    throw Error(ErrorCode::model, str(where, ": no model: not a tokenizer.json"), kSupported);
  }
  const std::string type =
      json_text(*model, "type", where).value_or(model->contains("merges") ? "BPE" : "without a type");
  if (type != "BPE") return {JsonKind::other, type};
  bool byte_level = false;
  for (const json* p : members(json_find(j, "pre_tokenizer", where), "pretokenizers", where + ": pre_tokenizer")) {
    byte_level = byte_level || type_of(*p, where + ": pre_tokenizer") == "ByteLevel";
  }
  if (byte_level && !json_bool(*model, "byte_fallback", where).value_or(false))
    return {JsonKind::byte_level, "byte-level BPE"};
  return {JsonKind::sentencepiece_bpe, "SentencePiece-style BPE"};
}

BpeParts read_tokenizer_json(const json& j, const TokenizerConfig& config, const std::string& where) {
  const auto [kind, name] = tokenizer_json_kind(j, where);
  if (kind != JsonKind::byte_level) {
    throw Error(ErrorCode::model,
                str(where, ": the tokenizer is of the kind ", printable(name), ", which is not supported"), kSupported);
  }
  return Reader(j, config, where).run();
}

}  // namespace bantam
