// SPDX-License-Identifier: Apache-2.0
#include "chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "../../kernels/hash.h"
#include "../../quant/gguf.h"
#include "chat_template_input.h"
#include "json_file.h"
#include "named_templates.h"
#include "utf8.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Sources = std::vector<std::pair<std::string, std::string>>;  // name, template

constexpr size_t kMostTemplateBytes = size_t{16} << 20;
constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};

bool present(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

// A text, or a list of {"name": ..., "template": ...}.
Sources named_templates(const json& value, const std::string& where) {
  if (value.is_string()) return {{"default", value.get<std::string>()}};
  if (!value.is_array()) {
    throw Error(ErrorCode::model,
                str(where, ": expected a text or a list of named templates, found ", value.type_name()));
  }
  Sources out;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = str(where, "[", i, "]");
    const auto name = json_text(value[i], "name", at), source = json_text(value[i], "template", at);
    if (!name || !source) throw Error(ErrorCode::model, str(at, ": expected a name and a template"));
    for (const auto& [other, unused] : out)
      if (other == *name) throw Error(ErrorCode::model, str(at, ": a second template '", printable(*name), "'"));
    out.emplace_back(*name, *source);
  }
  return out;
}

Sources folder_templates(const fs::path& folder, std::string& where) {
  if (const fs::path path = folder / "chat_template.jinja"; present(path)) {
    where = path.string();
    return {{"default", read_text_file(path)}};
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path path = folder / name;
    if (!present(path)) continue;
    const json j = parse_json(read_text_file(path), path.string());
    const json* value = json_find(j, "chat_template", path.string());
    if (value == nullptr) continue;
    where = path.string() + ": chat_template";
    return named_templates(*value, where);
  }
  return {};
}

Sources gguf_templates(const GgufFile& file, std::string& where) {
  where = file.path().string() + ": tokenizer.chat_template";
  Sources out;
  if (const auto source = file.find_text("tokenizer.chat_template")) out.emplace_back("default", *source);
  if (!file.has("tokenizer.chat_templates")) return out;
  for (const auto name : file.text_array("tokenizer.chat_templates")) {
    if (name == "default" && !out.empty()) continue;
    out.emplace_back(name, file.text(str("tokenizer.chat_template.", name)));
  }
  return out;
}

// "</s>" or {"content": "</s>", ...}.
std::optional<std::string> token_text(const json& j, const char* key, const std::string& where) {
  const json* v = json_find(j, key, where);
  if (v != nullptr && v->is_object()) return json_text(*v, "content", str(where, ": ", key));
  return json_text(j, key, where);
}

JinjaValue::Entries folder_tokens(const fs::path& folder) {
  JinjaValue::Entries out;
  std::vector<std::pair<json, std::string>> files;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (present(path)) files.emplace_back(parse_json(read_text_file(path), path.string()), path.string());
  }
  for (const char* key : kTokens) {
    for (const auto& [j, where] : files) {
      if (!j.is_object()) throw Error(ErrorCode::model, str(where, ": expected an object, found ", j.type_name()));
      if (!j.contains(key)) continue;
      // null says that there is none, whatever the older file has
      if (const auto text = token_text(j, key, where)) out.emplace_back(key, *text);
      break;
    }
  }
  return out;
}

JinjaValue::Entries gguf_tokens(const GgufFile& file) {
  static constexpr std::pair<const char*, const char*> kKeys[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
      {"mask_token", "tokenizer.ggml.mask_token_id"}};
  JinjaValue::Entries out;
  if (!file.has("tokenizer.ggml.tokens")) return out;
  const auto tokens = file.text_array("tokenizer.ggml.tokens");
  for (const auto& [name, key] : kKeys) {
    const auto id = file.find_integer(key);
    if (!id || *id == -1 || *id == int64_t{UINT32_MAX}) continue;
    if (*id < 0 || *id >= static_cast<int64_t>(tokens.size())) {
      throw Error(ErrorCode::model,
                  str(file.path().string(), ": ", key, " is ", *id, ", but there are ", tokens.size(), " tokens"));
    }
    out.emplace_back(name, tokens[static_cast<size_t>(*id)]);
  }
  return out;
}

bool is_gguf(const fs::path& model) {
  std::error_code ec;
  return model.extension() == ".gguf" && !fs::is_directory(model, ec);
}

JinjaValue::Entries model_tokens(const fs::path& model) {
  if (model.empty()) return {};
  return is_gguf(model) ? gguf_tokens(*GgufFile::open(model)) : folder_tokens(model);
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& model) {
  if (!present(model)) throw Error(ErrorCode::model, str(model.string(), ": no such file or folder"));
  ChatTemplate out;
  Sources sources;
  if (is_gguf(model)) {
    const auto file = GgufFile::open(model);
    sources = gguf_templates(*file, out.where_);
    out.special_tokens_ = gguf_tokens(*file);
  } else {
    sources = folder_templates(model, out.where_);
    out.special_tokens_ = folder_tokens(model);
  }
  if (sources.empty()) return std::nullopt;
  out.name_ = kTokenizerDefault;
  for (auto& [name, source] : sources) {
    std::string place = sources.size() == 1 ? out.where_ : str(out.where_, "(", printable(name, 60), ")");
    out.add(std::move(name), std::move(source), std::move(place));
  }
  return out;
}

ChatTemplate ChatTemplate::load(const fs::path& model) {
  if (auto found = find(model)) return *std::move(found);
  throw Error(
      ErrorCode::model, str(model.string(), ": no chat template"),
      "a base model has none: set chat_template: chatml (or another name, or the path of a .jinja file), or use "
      "another dataset type");
}

ChatTemplate ChatTemplate::from_text(const std::string& source, std::string name, const fs::path& model) {
  ChatTemplate out;
  out.where_ = out.name_ = name;
  out.special_tokens_ = model_tokens(model);
  out.add("default", source, std::move(name));
  return out;
}

ChatTemplate ChatTemplate::named(std::string_view name, const fs::path& model) {
  return named(name, model_tokens(model), model.string());
}

ChatTemplate ChatTemplate::named(std::string_view name, const Tokenizer& tokenizer) {
  JinjaValue::Entries tokens;
  if (tokenizer.bos_id() >= 0) tokens.emplace_back("bos_token", tokenizer.piece(tokenizer.bos_id()));
  if (tokenizer.eos_id() >= 0) tokens.emplace_back("eos_token", tokenizer.piece(tokenizer.eos_id()));
  return named(name, std::move(tokens), "the tokenizer");
}

ChatTemplate ChatTemplate::named(std::string_view name, JinjaValue::Entries tokens, const std::string& owner) {
  const NamedTemplate& known = named_template(name);
  ChatTemplate out;
  out.where_ = str("chat_template ", name);
  out.name_ = name;
  out.special_tokens_ = std::move(tokens);
  const bool has_eos = std::any_of(out.special_tokens_.begin(), out.special_tokens_.end(),
                                   [](const auto& token) { return token.first.text() == "eos_token"; });
  if (known.writes_eos && !has_eos) {
    throw Error(ErrorCode::model,
                str(out.where_, ": it ends answers with eos_token, and ",
                    owner.empty() ? "no model names one" : owner + " names none"),
                "name eos_token in tokenizer_config.json, or take another template");
  }
  out.add("default", known.source, out.where_);
  return out;
}

ChatTemplate ChatTemplate::resolve(const std::string& setting, const fs::path& model) {
  if (setting == kTokenizerDefault) return load(model);
  const fs::path path(setting);
  if (path.extension() != ".jinja") return named(setting, model);
  if (!present(path)) throw Error(ErrorCode::usage, str("chat_template ", setting, ": no such file"));
  return from_text(read_text_file(path, kMostTemplateBytes), setting, model);
}

void ChatTemplate::add(std::string name, std::string source, std::string place) {
  JinjaTemplate parsed = JinjaTemplate::parse(source, std::move(place));
  const TemplateWants wants = try_out(parsed, special_tokens_);
  templates_.push_back({std::move(name), std::move(source), std::move(parsed), wants});
}

const ChatTemplate::Entry& ChatTemplate::entry(bool with_tools) const {
  const auto find = [&](std::string_view name) -> const Entry* {
    for (const Entry& e : templates_)
      if (e.name == name) return &e;
    return nullptr;
  };
  if (const auto* tool_use = with_tools ? find("tool_use") : nullptr) return *tool_use;
  if (const auto* found = find("default")) return *found;
  std::string names;
  for (const Entry& e : templates_) names += (names.empty() ? "" : ", ") + printable(e.name, 60);
  throw Error(ErrorCode::model, str(where_, ": no template is named 'default', found ", names));
}

const JinjaTemplate& ChatTemplate::select(bool with_tools) const {
  return entry(with_tools).parsed;
}

const std::string& ChatTemplate::source(bool with_tools) const {
  return entry(with_tools).source;
}

uint64_t ChatTemplate::fingerprint() const {
  // each text behind its length, so that no two lists of texts run together
  uint64_t hash = kFnvStart;
  const auto add = [&](std::string_view text) {
    const uint64_t n = text.size();
    hash = fnv1a(text, fnv1a(&n, sizeof n, hash));
  };
  for (const Entry& e : templates_) add(e.name), add(e.source);
  for (const auto& [name, token] : special_tokens_) add(name.text()), add(token.text());
  if (today_ && uses_date()) add(str(today_->tm_year, "-", today_->tm_mon, "-", today_->tm_mday));
  return hash;
}

bool ChatTemplate::uses_date() const {
  return std::any_of(templates_.begin(), templates_.end(),
                     [](const Entry& e) { return e.source.find("strftime_now") != std::string::npos; });
}

Rendered ChatTemplate::render(const ChatInput& input, const JinjaOptions& options) const {
  const Entry& e = entry(!input.tools.is(JinjaValue::Kind::none));
  if (options.clock || !today_) return e.parsed.render(template_context(input, special_tokens_, e.wants), options);
  JinjaOptions dated = options;
  dated.clock = [this] { return *today_; };
  return e.parsed.render(template_context(input, special_tokens_, e.wants), dated);
}

}  // namespace bantam
