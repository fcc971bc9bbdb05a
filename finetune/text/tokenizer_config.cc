// SPDX-License-Identifier: Apache-2.0
#include "../../kernels/error.h"
#include "json_file.h"
#include "text_model.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

// "</s>" or {"content": "</s>", ...}.
std::optional<std::string> token_text(const nlohmann::json& j, const char* key, const std::string& where) {
  const auto* v = json_find(j, key, where);
  if (v != nullptr && v->is_object()) return json_text(*v, "content", str(where, ": ", key));
  return json_text(j, key, where);
}

// An id, or a list of ids of which the first counts.
std::optional<int64_t> token_number(const nlohmann::json& j, const char* key, const std::string& where) {
  const auto* v = json_find(j, key, where);
  if (v != nullptr && v->is_array()) {
    if (v->empty() || !(*v)[0].is_number_integer()) {
      throw Error(ErrorCode::model, str(where, ": ", key, ": expected token ids"));
    }
    return (*v)[0].get<int64_t>();
  }
  return json_integer(j, key, where);
}

bool present(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

AddedToken added_token(const nlohmann::json& t, int64_t id, const std::string& where) {
  if (id < 0 || id > kMostTokenId) throw Error(ErrorCode::model, str(where, ": id ", id));
  AddedToken out;
  out.id = static_cast<int32_t>(id);
  out.content = json_text(t, "content", where).value_or("");
  if (out.content.empty()) throw Error(ErrorCode::model, str(where, ": token ", id, " has no content"));
  out.special = json_bool(t, "special", where).value_or(false);
  out.lstrip = json_bool(t, "lstrip", where).value_or(false);
  out.rstrip = json_bool(t, "rstrip", where).value_or(false);
  out.normalized = json_bool(t, "normalized", where).value_or(!out.special);
  out.single_word = json_bool(t, "single_word", where).value_or(false);
  return out;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const nlohmann::json& j, const std::string& where) {
  std::vector<AddedToken> out;
  const auto* list = json_find(j, "added_tokens", where);
  if (list == nullptr) return out;
  if (!list->is_array()) throw Error(ErrorCode::model, str(where, ": added_tokens: expected a list"));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = str(where, ": added_tokens[", i, "]");
    out.push_back(added_token((*list)[i], json_integer((*list)[i], "id", at).value_or(-1), at));
  }
  return out;
}

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig out;
  if (const fs::path path = folder / "tokenizer_config.json"; present(path)) {
    const std::string where = path.string();
    const auto j = parse_json(read_text_file(path), where);
    out.bos = token_text(j, "bos_token", where);
    out.eos = token_text(j, "eos_token", where);
    out.adds_bos = json_bool(j, "add_bos_token", where);
    out.adds_eos = json_bool(j, "add_eos_token", where);
    out.legacy = json_bool(j, "legacy", where);
    if (const auto* added = json_find(j, "added_tokens_decoder", where)) {
      if (!added->is_object()) throw Error(ErrorCode::model, str(where, ": added_tokens_decoder: expected an object"));
      for (const auto& [key, token] : added->items()) {
        const std::string at = str(where, ": added_tokens_decoder.", printable(key, 40));
        if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos) {
          throw Error(ErrorCode::model, str(at, ": the key is no token id"));
        }
        out.added.push_back(added_token(token, std::stoll(key), at));
      }
    }
  }
  if (const fs::path path = folder / "special_tokens_map.json"; present(path)) {
    const auto j = parse_json(read_text_file(path), path.string());
    if (!out.bos) out.bos = token_text(j, "bos_token", path.string());
    if (!out.eos) out.eos = token_text(j, "eos_token", path.string());
  }
  if (const fs::path path = folder / "config.json"; (!out.bos || !out.eos) && present(path)) {
    const auto j = parse_json(read_text_file(path), path.string());
    if (!out.bos) out.bos_id = token_number(j, "bos_token_id", path.string());
    if (!out.eos) out.eos_id = token_number(j, "eos_token_id", path.string());
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> tokenizer_files(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model",
        "tekken.json", "vocab.json", "merges.txt", "chat_template.jinja", "tiktoken.json"}) {
    if (present(folder / name)) out.emplace_back(name, read_text_file(folder / name));
  }
  if (!present(folder / "tokenizer.json") && !present(folder / "tokenizer.model")) {
    const fs::path ranks = find_tiktoken(folder);
    if (!ranks.empty()) out.emplace_back(ranks.filename().string(), read_text_file(ranks));
  }
  return out;
}

}  // namespace bantam
