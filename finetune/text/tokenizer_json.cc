// SPDX-License-Identifier: Apache-2.0
// tokenizer.json. What the file asks for is done, or the file is refused by name.
#include <algorithm>
#include <unordered_map>

#include "../../kernels/error.h"
#include "bpe.h"
#include "json_file.h"
#include "stage_json.h"
#include "tokenizer_files.h"
#include "unigram.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(const json& j, const TokenizerConfig& config, const std::string& where)
      : j_(j), config_(config), where_(where) {
    parts_.where = where;
  }

  PipelineParts run() {
    const json* model = json_find(j_, "model", where_);
    if (model == nullptr || !model->is_object()) {
      throw Error(ErrorCode::model, str(where_, ": no model: not a tokenizer.json"));
    }
    const std::string at = where_ + ": model";
    std::string type = json_text(*model, "type", at).value_or("");
    if (type.empty()) type = model->contains("merges") ? "BPE" : "without a type";
    if (type != "BPE" && type != "Unigram") {
      fail(str("model: the tokenizer is of the kind ", printable(type),
               ", which is not supported (known: BPE, Unigram)"));
    }
    // Bytes need not be written in the byte alphabet when that is the last thing done before BPE.
    const bool byte_level = type == "BPE" && !json_bool(*model, "byte_fallback", at).value_or(false) &&
                            json_text(*model, "continuing_subword_prefix", at).value_or("").empty() &&
                            json_text(*model, "end_of_word_suffix", at).value_or("").empty();
    parts_.pre_tokenizer = read_pre_tokenizer(json_find(j_, "pre_tokenizer", where_), byte_level, where_);
    parts_.added = read_added_tokens(j_, where_);
    add_from_config();
    type == "BPE" ? read_bpe(*model, at) : read_unigram(*model, at);
    parts_.normalizer = read_normalizer(json_find(j_, "normalizer", where_), where_);
    parts_.post_processor = read_post_processor(json_find(j_, "post_processor", where_), where_);
    parts_.decoder = read_decoder(json_find(j_, "decoder", where_), where_);
    read_bos_eos();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, std::string hint = {}) const {
    throw Error(ErrorCode::model, str(where_, ": ", what), std::move(hint));
  }

  std::vector<int32_t> controls() const {
    std::vector<int32_t> out;
    for (const AddedToken& t : parts_.added) {
      if (t.special) out.push_back(t.id);
    }
    return out;
  }

  void read_bpe(const json& m, const std::string& at) {
    BpeParts bpe;
    bpe.where = where_;
    bpe.controls = controls();
    bpe.bytes = parts_.pre_tokenizer.ends_in_bytes;
    const json* vocab = json_find(m, "vocab", at);
    if (vocab == nullptr || !vocab->is_object() || vocab->empty()) fail("model.vocab: expected an object of tokens");
    int64_t most = 0;
    for (const auto& [text, id] : vocab->items()) {
      if (!id.is_number_integer() || id < 0 || id > kMostTokenId || !plausible_id(id.get<int64_t>(), vocab->size())) {
        fail(str("model.vocab: token '", printable(text), "': expected an id of about 0 to ", vocab->size()));
      }
      most = std::max(most, id.get<int64_t>());
    }
    bpe.tokens.resize(static_cast<size_t>(most) + 1);
    for (const auto& [text, id] : vocab->items()) {
      std::string& slot = bpe.tokens[id.get<size_t>()];
      if (!slot.empty()) {
        fail(
            str("model.vocab: id ", id.get<int64_t>(), " is both '", printable(slot), "' and '", printable(text), "'"));
      }
      slot = text;
    }
    read_merges(m, at, bpe);
    const json* dropout = json_find(m, "dropout", at);
    if (dropout != nullptr && *dropout != 0) fail("model.dropout is not supported");
    bpe.ignore_merges = json_bool(m, "ignore_merges", at).value_or(false);
    bpe.byte_fallback = json_bool(m, "byte_fallback", at).value_or(false);
    bpe.fuse_unk = json_bool(m, "fuse_unk", at).value_or(false);
    bpe.word_prefix = json_text(m, "continuing_subword_prefix", at).value_or("");
    bpe.word_suffix = json_text(m, "end_of_word_suffix", at).value_or("");
    const auto unk = json_text(m, "unk_token", at);
    if (unk && vocab->contains(*unk)) bpe.unk = vocab->at(*unk).get<int32_t>();
    const bool unk_missing = unk && bpe.unk < 0;
    parts_.model = std::make_unique<BpeModel>(std::move(bpe));
    if (unk_missing && !parts_.model->complete()) {
      fail(str("model.unk_token '", printable(*unk), "' is not in the vocabulary"));
    }
  }

  void read_merges(const json& m, const std::string& at, BpeParts& bpe) const {
    const json* merges = json_find(m, "merges", at);
    if (merges == nullptr || !merges->is_array() || merges->empty()) {
      fail("model.merges: expected a list that is not empty");
    }
    bpe.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const json& merge = (*merges)[i];
      if (merge.is_string()) {
        bpe.merges.push_back(split_merge(merge.get_ref<const std::string&>(), i, where_));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        bpe.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        fail(str("model.merges[", i, "]: expected \"a b\" or [\"a\", \"b\"]"));
      }
    }
  }

  void read_unigram(const json& m, const std::string& at) {
    UnigramParts unigram;
    unigram.where = where_;
    unigram.controls = controls();
    const json* vocab = json_find(m, "vocab", at);
    if (vocab == nullptr || !vocab->is_array() || vocab->empty()) fail("model.vocab: expected a list of tokens");
    if (vocab->size() > static_cast<size_t>(kMostTokenId)) fail(str("model.vocab: ", vocab->size(), " tokens"));
    for (size_t i = 0; i < vocab->size(); ++i) {
      const json& entry = (*vocab)[i];
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
        fail(str("model.vocab[", i, "]: expected [\"token\", score]"));
      }
      unigram.tokens.push_back(entry[0].get<std::string>());
      unigram.scores.push_back(entry[1].get<double>());
    }
    if (const auto unk = json_integer(m, "unk_id", at)) {
      if (*unk < 0 || *unk > kMostTokenId) fail(str("model.unk_id is ", *unk));
      unigram.unk = static_cast<int32_t>(*unk);
    }
    unigram.byte_fallback = json_bool(m, "byte_fallback", at).value_or(false);
    parts_.model = std::make_unique<UnigramModel>(std::move(unigram));
  }

  void add_from_config() {
    std::unordered_map<int32_t, std::string> known;
    for (const AddedToken& t : parts_.added) known[t.id] = t.content;
    for (const AddedToken& t : config_.added) {
      const auto [it, fresh] = known.emplace(t.id, t.content);
      if (fresh) {
        parts_.added.push_back(t);
      } else if (it->second != t.content) {
        fail(str("token ", t.id, " is '", printable(it->second), "' here and '", printable(t.content),
                 "' in tokenizer_config.json"));
      }
    }
  }

  int32_t id_of(const std::string& text, const char* what) const {
    for (const AddedToken& t : parts_.added) {
      if (t.content == text) return t.id;
    }
    const int32_t id = parts_.model->vocabulary().find(text);
    if (id < 0) fail(str(what, " '", printable(text), "' is not in the vocabulary"));
    return id;
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
    parts_.post_processor.prefix = bos ? std::vector<int32_t>{parts_.bos} : std::vector<int32_t>{};
    parts_.post_processor.suffix = eos ? std::vector<int32_t>{parts_.eos} : std::vector<int32_t>{};
  }

  const json& j_;
  const TokenizerConfig& config_;
  const std::string& where_;
  PipelineParts parts_;
};

}  // namespace

PipelineParts read_tokenizer_json(const json& j, const TokenizerConfig& config, const std::string& where) {
  return Reader(j, config, where).run();
}

}  // namespace bantam
