// SPDX-License-Identifier: Apache-2.0
#include "model_source.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "../finetune/data/chat/chat_encoder.h"
#include "../finetune/train/run_state.h"
#include "../kernels/error.h"
#include "load.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

JinjaValue message(const char* role, const std::string& content) {
  return JinjaValue::dict({{"role", role}, {"content", content}});
}

Conversation conversation_of(const ChatPrompt& p) {
  JinjaValue::List messages;
  Conversation c;
  if (!p.system.empty()) messages.push_back(message("system", p.system)), c.turns.push_back({"system", {}, {}});
  messages.push_back(message("user", p.user)), c.turns.push_back({"user", {}, {}});
  c.messages = JinjaValue::list(std::move(messages));
  return c;
}

// eos_token_id of generation_config.json: a number or a list of them.
std::vector<int32_t> generation_config_ids(const fs::path& model) {
  std::vector<int32_t> out;
  std::ifstream in(model / "generation_config.json", std::ios::binary);
  if (!in) return out;
  const auto j = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {}), nullptr, false);
  if (!j.is_object() || !j.contains("eos_token_id")) return out;
  const auto& ids = j["eos_token_id"];
  for (const auto& id : ids.is_array() ? ids : nlohmann::json::array({ids}))
    if (id.is_number_integer()) out.push_back(id.get<int32_t>());
  return out;
}

}  // namespace

ModelSource find_source(const fs::path& model_or_run, bool needs_adapter) {
  ModelSource s{.model = model_or_run};
  std::error_code ec;
  if (const fs::path file = model_or_run / "recipe.resolved.yaml"; fs::exists(file, ec)) {
    s.recipe = load_recipe(file).recipe;
    s.model = s.recipe->base_model;
    s.chat_template = s.recipe->chat_template;
    s.chat = std::all_of(s.recipe->datasets.begin(), s.recipe->datasets.end(), [](const DatasetSpec& d) {
      return d.type == DatasetType::chat || d.type == DatasetType::alpaca;
    });
    s.adapter = model_or_run;
    if (!fs::exists(s.adapter / "adapter_model.safetensors", ec)) {
      const auto steps = list_checkpoints(model_or_run);
      s.adapter = steps.empty() ? fs::path() : model_or_run / str("checkpoint-", steps.back());
      if (steps.empty() && needs_adapter)
        throw Error(ErrorCode::model, str(model_or_run.string(), ": this run has no adapter and no checkpoint yet"),
                    "let it train first");
    }
  } else if (fs::exists(model_or_run / "adapter_config.json", ec)) {
    throw Error(ErrorCode::usage, str(model_or_run.string(), ": an adapter, expected a model or a run folder"),
                "name the base model; bantam generate MODEL --adapter " + model_or_run.string());
  }
  return s;
}

std::string chat_prompt(const ChatTemplate& chat_template, const ChatPrompt& p) {
  return chat_template.render({.messages = conversation_of(p).messages, .add_generation_prompt = true}).text;
}

std::vector<int32_t> chat_prompt_ids(const std::shared_ptr<const ChatTemplate>& chat_template,
                                     const std::shared_ptr<const Tokenizer>& tokenizer, const ChatPrompt& p) {
  return ChatEncoder(tokenizer, chat_template).encode_prompt(conversation_of(p));
}

std::vector<int32_t> stop_ids(const fs::path& model, const std::shared_ptr<const Tokenizer>& tokenizer,
                              const std::shared_ptr<const ChatTemplate>& chat_template) {
  std::vector<int32_t> ids = generation_config_ids(model);
  if (tokenizer->eos_id() >= 0) ids.insert(ids.begin(), tokenizer->eos_id());
  if (chat_template) {
    // What training supervises behind an answer is what ends it, where it is one token.
    const auto end = ChatEncoder(tokenizer, chat_template).end_of_turn();
    if (end && end->ids.size() == 1) ids.push_back(end->ids[0]);
  }
  std::vector<int32_t> once;
  for (const int32_t id : ids)
    if (std::count(once.begin(), once.end(), id) == 0) once.push_back(id);
  return once;
}

}  // namespace bantam
