// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../finetune/data/dataset.h"
#include "../kernels/error.h"
#include "commands.h"
#include "model_source.h"

namespace bantam {

int inspect_command(const InspectCommandOptions& o) {
  const ModelSource source = find_source(o.model_or_run, false);
  const auto tokenizer = load_tokenizer(source.model);
  const auto chat_template = load_chat_template(source.model, o.chat_template.value_or(source.chat_template));
  const bool plain = source.recipe && !source.chat && !o.chat_template;
  // A run that was not trained on chat rows is asked as it was trained.
  const ChatPrompt prompt{o.system, o.prompt.empty() ? "Hello!" : o.prompt};
  std::string text;
  std::vector<int32_t> ids;
  if (plain || !chat_template) {
    ids = tokenizer->encode(prompt.user, {.add_special = true, .parse_special = false});
    text = tokenizer->decode(ids, false);
  } else {
    text = chat_prompt(*chat_template, prompt);
    ids = chat_prompt_ids(chat_template, tokenizer, prompt);
  }
  const auto stops = stop_ids(source.model, tokenizer, plain ? nullptr : chat_template);
  if (o.only_prompt && !o.common.json) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  const std::string template_name = chat_template ? chat_template->name() : "none";
  if (o.common.json) {
    nlohmann::ordered_json j = {{"model", source.model.string()}, {"adapter", source.adapter.string()}};
    j["chat_template"] = template_name;
    j["vocab_size"] = tokenizer->vocab_size();
    j["bos_id"] = tokenizer->bos_id(), j["eos_id"] = tokenizer->eos_id();
    for (const int32_t id : stops) j["stop"].push_back({{"id", id}, {"piece", tokenizer->piece(id)}});
    j["prompt"] = text, j["prompt_ids"] = ids;
    std::printf("%s\n", j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  std::printf("model          %s\n", source.model.c_str());
  if (!source.adapter.empty()) std::printf("adapter        %s\n", source.adapter.c_str());
  std::printf("chat template  %s%s\n", template_name.c_str(),
              plain ? " (not used: the run was not trained on chat rows)" : "");
  std::printf("vocabulary     %d tokens\n", tokenizer->vocab_size());
  std::printf("answers end    ");
  for (size_t i = 0; i < stops.size(); ++i)
    std::printf("%s%s (%d)", i ? ", " : "", tokenizer->piece(stops[i]).c_str(), stops[i]);
  std::printf("\nprompt, %zu tokens:\n%s\n", ids.size(), text.c_str());
  return 0;
}

}  // namespace bantam
