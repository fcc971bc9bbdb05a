// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../finetune/train/generator.h"
#include "../lora/peft_files.h"
#include "commands.h"
#include "model_source.h"
#include "session.h"

namespace bantam {

namespace {

QuantConfig quantization(const GenerateCommandOptions& o, const ModelSource& source) {
  QuantConfig q = source.recipe ? quant_config(*source.recipe) : QuantConfig{};
  if (o.quant_type) q.type = *o.quant_type == Recipe::QuantType::none ? QuantType::none : QuantType::nf4;
  return q;
}

// Prints whole UTF-8 characters only: a token may end within one.
class Utf8Printer {
 public:
  void add(const std::string& bytes) {
    held_ += bytes;
    size_t whole = 0;
    for (size_t i = 0; i < held_.size();) {
      const auto c = static_cast<unsigned char>(held_[i]);
      const size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
      if (i + n > held_.size()) break;
      whole = i += n;
    }
    std::fwrite(held_.data(), 1, whole, stdout);
    std::fflush(stdout);
    held_.erase(0, whole);
  }
  ~Utf8Printer() { std::fwrite(held_.data(), 1, held_.size(), stdout); }

 private:
  std::string held_;
};

}  // namespace

int generate_command(const GenerateCommandOptions& o) {
  const ModelSource source = find_source(o.model_or_run, o.adapter.empty());
  const std::filesystem::path adapter = o.adapter.empty() ? source.adapter : o.adapter;
  const QuantConfig quant = quantization(o, source);
  const Recipe::Dtype dtype = o.dtype == Recipe::Dtype::automatic && source.recipe ? source.recipe->dtype : o.dtype;
  const auto tokenizer = load_tokenizer(source.model);
  const bool chat = o.chat || (source.chat && !o.raw);
  const auto chat_template = chat ? load_chat_template(source.model, source.chat_template) : nullptr;
  if (chat && !chat_template)
    throw Error(ErrorCode::model, str(source.model.string(), ": the model has no chat template"),
                "leave --chat out, or train with chat_template");
  if (!o.chat && chat && !o.common.quiet)
    std::fprintf(stderr, "the prompt is written with the run's chat template; --raw takes it as it is\n");
  const auto ctx = make_context(o.device, o.num_threads);
  const auto model = load_with_progress(source.model, quant, *ctx, o.common.quiet);
  std::optional<AdapterSet> adapters;
  if (!adapter.empty()) adapters = load_adapter(adapter, linear_modules(model->config));

  const std::vector<int32_t> prompt = chat
                                          ? chat_prompt_ids(chat_template, tokenizer, {o.system, o.prompt})
                                          : tokenizer->encode(o.prompt, {.add_special = !o.raw, .parse_special = true});
  if (prompt.empty()) throw Error(ErrorCode::usage, "--prompt is empty", "give a text to continue");
  const auto wanted = static_cast<int64_t>(prompt.size()) + o.max_new_tokens;
  const int64_t length = std::min(wanted, model->config.max_position_embeddings);
  if (static_cast<int64_t>(prompt.size()) > length)
    throw Error(ErrorCode::usage,
                str("--prompt has ", prompt.size(), " tokens, the model takes ", model->config.max_position_embeddings),
                "shorten it");
  Generator generator(*ctx, model, adapters ? &*adapters : nullptr, dtype_of_recipe(dtype), length);

  GenerateOptions options{.max_new_tokens = o.max_new_tokens,
                          .temperature = o.temperature,
                          .top_p = o.top_p,
                          .seed = static_cast<uint64_t>(o.seed),
                          .stop = stop_ids(source.model, tokenizer, chat_template)};
  const auto t0 = std::chrono::steady_clock::now();
  std::vector<int32_t> ids;
  if (o.common.json) {
    ids = generator.generate(prompt, options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    const nlohmann::ordered_json j = {{"prompt_tokens", prompt.size()},
                                      {"new_tokens", ids.size()},
                                      {"seconds", seconds},
                                      {"text", tokenizer->decode(ids)}};
    std::printf("%s\n", j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  {
    Utf8Printer out;
    size_t printed = 0;
    ids = generator.generate(prompt, options, [&](int32_t id) {
      ids.push_back(id);
      const std::string text = tokenizer->decode(ids);
      // Decoding the whole keeps joining rules right; only what is new is printed.
      if (text.size() > printed) out.add(text.substr(printed));
      printed = std::max(printed, text.size());
      return true;
    });
  }
  std::printf("\n");
  return 0;
}

}  // namespace bantam
