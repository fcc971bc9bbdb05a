// SPDX-License-Identifier: Apache-2.0
#include "key_table.h"

#include <tuple>
#include <type_traits>

namespace bantam {
namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// Ties a row to a field of Recipe: enums travel as the name of their value, empty optionals as the key's word.
template <auto Member>
struct Field {
  using T = std::remove_cvref_t<decltype(std::declval<Recipe&>().*Member)>;

  static void set(Recipe& recipe, const KeySpec& key, const KeyValue& value) {
    T& field = recipe.*Member;
    if constexpr (std::is_enum_v<T>) {
      for (size_t i = 0; i < key.values.size(); ++i) {
        if (key.values[i].name == std::get<std::string>(value)) field = static_cast<T>(i);
      }
    } else if constexpr (IsOptional<T>::value) {
      if (std::holds_alternative<std::monostate>(value)) {
        field.reset();
      } else {
        field = std::get<typename T::value_type>(value);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      field = std::holds_alternative<std::monostate>(value) ? std::string{} : std::get<std::string>(value);
    } else {
      field = std::get<T>(value);
    }
  }
  static KeyValue get(const Recipe& recipe, const KeySpec& key) {
    const T& field = recipe.*Member;
    if constexpr (std::is_enum_v<T>) {
      return key.values.at(static_cast<size_t>(field)).name;
    } else if constexpr (IsOptional<T>::value) {
      return field ? KeyValue(*field) : KeyValue();
    } else if constexpr (std::is_same_v<T, std::string>) {
      return field.empty() && !key.word.empty() ? KeyValue() : KeyValue(field);
    } else {
      return field;
    }
  }
};

template <auto Member>
KeySpec with_field(KeySpec key) {
  key.set = Field<Member>::set;
  key.get = Field<Member>::get;
  return key;
}

/// gradient_checkpointing: its mode, and for every_n the number with it, as "every_n: 4".
KeySpec with_every_n(KeySpec key) {
  key.set = [](Recipe& recipe, const KeySpec& k, const KeyValue& value) {
    const std::string& text = std::get<std::string>(value);
    const size_t colon = text.find(':');
    Field<&Recipe::gradient_checkpointing>::set(recipe, k, text.substr(0, colon));
    if (colon != std::string::npos) recipe.every_n = std::stoll(text.substr(colon + 1));
  };
  key.get = [](const Recipe& recipe, const KeySpec& k) -> KeyValue {
    const KeyValue name = Field<&Recipe::gradient_checkpointing>::get(recipe, k);
    if (recipe.gradient_checkpointing != Recipe::Checkpointing::every_n) return name;
    return "every_n: " + std::to_string(recipe.every_n);
  };
  return key;
}

Range at_least(double min) {
  return {.min = min};
}
Range above(double min) {
  return {.min = min, .above_min = true};
}
Range from_to(double min, double max) {
  return {.min = min, .max = max};
}
Range from_below(double min, double max) {
  return {.min = min, .max = max, .below_max = true};
}

std::vector<std::pair<std::string, std::string>> type_synonyms() {
  return {{"completion", "text"}, {"chat_template", "chat"}, {"conversation", "chat"},  {"sharegpt", "chat"},
          {"messages", "chat"},   {"openai", "chat"},        {"conversational", "chat"}};
}

using List = std::vector<KeySpec>;
constexpr bool kResult = true, kNoResult = false;

void add_model(List& t) {
  t.push_back(with_field<&Recipe::base_model>(
      {.name = "base_model",
       .section = "model",
       .type = KeyType::path,
       .help = "The model to fine-tune: a folder with safetensors files, or a .gguf file.",
       .aliases = {{"model_name_or_path"}, {"model"}, {"checkpoint_dir"}},
       .required = true}));
  t.push_back(with_field<&Recipe::hf_base>(
      {.name = "hf_base",
       .section = "model",
       .type = KeyType::text,
       .help = "Hub id written into adapter_config.json where the base model is a GGUF file; auto: from its metadata.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .word = "auto"}));
  t.push_back(with_field<&Recipe::chat_template>(
      {.name = "chat_template",
       .section = "model",
       .type = KeyType::text,
       .help = "What chat rows are written with: tokenizer_default (the model's own), a name such as chatml, or a "
               ".jinja file.",
       .since = Since::data,
       .aliases = {{"chat_template_jinja"}, {"template"}},
       .synonyms = {{"default", "tokenizer_default"}, {"tokenizer", "tokenizer_default"}}}));
  t.push_back(with_field<&Recipe::dtype>(
      {.name = "dtype",
       .section = "model",
       .type = KeyType::choice,
       .help = "Type in which activations are stored. Sums, norms, adapters and optimiser state are f32 in any case.",
       .values = {{"auto"}, {"bf16"}, {"f32"}},
       .aliases =
           {{"bf16", AliasKind::mapped, {{"true", "bf16"}, {"auto", "auto"}, {"full", "bf16"}, {"false", "f32"}}},
            {"fp32", AliasKind::mapped, {{"true", "f32"}, {"false", ""}}},
            {"torch_dtype"},
            {"bnb_4bit_compute_dtype"}},
       .synonyms = {{"bfloat16", "bf16"}, {"float32", "f32"}, {"fp32", "f32"}},
       .refusals = {{"float16", "half precision needs loss scaling and is not offered; use bf16"},
                    {"fp16", "half precision needs loss scaling and is not offered; use bf16"}}}));
  t.push_back(with_field<&Recipe::device>(
      {.name = "device",
       .section = "model",
       .type = KeyType::choice,
       .help = "Where to compute: cuda is the first GPU, cuda:1 the second; auto a GPU if there is one, else the CPU.",
       .values = {{"auto"}, {"cpu"}, {"cuda", Since::cuda, true}},
       .synonyms = {{"gpu", "cuda"}}}));
  t.push_back(with_field<&Recipe::num_threads>(
      {.name = "num_threads",
       .section = "model",
       .type = KeyType::integer,
       .help = "CPU threads; auto: one per core that the process may use. Results do not depend on it.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = from_to(1, 4096),
       .word = "auto",
       .aliases = {{"threads"}}}));
}

void add_quantization(List& t) {
  t.push_back(with_field<&Recipe::quant_type>(
      {.name = "quant_type",
       .section = "quantization",
       .type = KeyType::choice,
       .help = "How the frozen base weights are held: 4-bit NormalFloat, or none (the precision of the files).",
       .values = {{"nf4"}, {"fp4", Since::models}, {"none"}},
       .aliases = {{"load_in_4bit", AliasKind::mapped, {{"true", "nf4"}, {"false", "none"}}},
                   {"bnb_4bit_quant_type"},
                   {"quantization_type"},
                   {"adapter", AliasKind::mapped, {{"qlora", "nf4"}, {"lora", "none"}}}}}));
  t.push_back(with_field<&Recipe::double_quant>(
      {.name = "double_quant",
       .section = "quantization",
       .type = KeyType::boolean,
       .help = "Quantise the block scales too: 4.13 instead of 4.5 bits per weight.",
       .aliases = {{"double_quantization"}, {"use_bnb_nested_quant"}, {"bnb_4bit_use_double_quant"}}}));
  t.push_back(with_field<&Recipe::quant_block_size>({.name = "quant_block_size",
                                                     .section = "quantization",
                                                     .type = KeyType::integer,
                                                     .help = "Weights that share one scale; 64 in this version.",
                                                     .range = from_to(64, 64)}));
  t.push_back({.name = "quantize_lm_head",
               .section = "quantization",
               .type = KeyType::boolean,
               .help = "Hold the output head in 4 bits as well.",
               .since = Since::models,
               .later_default = "false"});
  t.push_back({.name = "quantize_embeddings",
               .section = "quantization",
               .type = KeyType::boolean,
               .help = "Hold the embeddings in 4 bits as well.",
               .since = Since::models,
               .later_default = "false"});
  t.push_back({.name = "skip_modules",
               .section = "quantization",
               .type = KeyType::list,
               .help = "Modules that are not quantised.",
               .since = Since::models,
               .aliases = {{"llm_int8_skip_modules"}},
               .later_default = "[lm_head, embeddings]"});
}

void add_lora(List& t) {
  t.push_back(with_field<&Recipe::lora_r>({.name = "lora_r",
                                           .section = "lora",
                                           .type = KeyType::integer,
                                           .help = "Rank of the adapters: their size and memory grow with it.",
                                           .range = from_to(1, 1024),
                                           .aliases = {{"lora_rank"}, {"r"}}}));
  t.push_back(with_field<&Recipe::lora_alpha>({.name = "lora_alpha",
                                               .section = "lora",
                                               .type = KeyType::number,
                                               .help = "The adapter's output is scaled by lora_alpha / lora_r.",
                                               .range = above(0),
                                               .aliases = {{"alpha"}}}));
  t.push_back(with_field<&Recipe::lora_dropout>({.name = "lora_dropout",
                                                 .section = "lora",
                                                 .type = KeyType::number,
                                                 .help = "Dropout on the adapters' input.",
                                                 .range = from_below(0, 1)}));
  t.push_back(with_field<&Recipe::lora_target_modules>(
      {.name = "lora_target_modules",
       .section = "lora",
       .type = KeyType::targets,
       .help = "Which linear layers get an adapter: all-linear, a list of module names, or a regular expression.",
       .aliases = {{"target_modules"},
                   {"lora_target"},
                   {"lora_target_linear", AliasKind::mapped, {{"true", "all-linear"}, {"false", ""}}}},
       .synonyms = {{"all", "all-linear"}}}));
  t.push_back(
      with_field<&Recipe::use_rslora>({.name = "use_rslora",
                                       .section = "lora",
                                       .type = KeyType::boolean,
                                       .help = "Scale by lora_alpha / sqrt(lora_r) instead (rank-stabilised LoRA).",
                                       .aliases = {{"peft_use_rslora"}}}));
  t.push_back({.name = "use_dora",
               .section = "lora",
               .type = KeyType::boolean,
               .help = "Weight-decomposed LoRA.",
               .since = Since::models,
               .aliases = {{"peft_use_dora"}},
               .later_default = "false"});
  t.push_back({.name = "lora_init",
               .section = "lora",
               .type = KeyType::choice,
               .help = "How the adapters start.",
               .since = Since::models,
               .values = {{"default"}, {"pissa", Since::models}, {"loftq", Since::models}},
               .aliases = {{"init_lora_weights"}, {"peft_init_lora_weights"}},
               .synonyms = {{"true", "default"}},
               .later_default = "default"});
  for (const auto& [name, help, aliases] :
       {std::tuple<const char*, const char*, std::vector<Alias>>{
            "loraplus_lr_ratio", "Learning rate of B over that of A.", {}},
        {"layers_to_transform", "Layers that get adapters.", {{"peft_layers_to_transform"}}},
        {"rank_pattern", "Rank per module.", {}},
        {"alpha_pattern", "Alpha per module.", {}},
        {"lora_modules_to_save", "Modules trained in full beside the adapters.", {{"modules_to_save"}}},
        {"adapter_path", "An adapter to go on from.", {{"lora_model_dir"}}}}) {
    t.push_back({.name = name,
                 .section = "lora",
                 .type = KeyType::opaque,
                 .help = help,
                 .since = Since::models,
                 .aliases = aliases,
                 .later_default = "none"});
  }
}

void add_data(List& t) {
  t.push_back(
      with_field<&Recipe::datasets>({.name = "datasets",
                                     .section = "data",
                                     .type = KeyType::datasets,
                                     .help = "What to train on: a list of {path, type, weight, field_...}; a plain "
                                             "path will do.",
                                     .aliases = {{"data"}},
                                     .required = true}));
  t.push_back(with_field<&Recipe::type>(
      {.name = "type",
       .section = "data",
       .type = KeyType::choice,
       .help = "Shape of the rows of datasets that name no type; auto: by the fields of the first row.",
       .values = dataset_types(),
       .synonyms = type_synonyms()}));
  t.push_back(with_field<&Recipe::test_datasets>({.name = "test_datasets",
                                                  .section = "data",
                                                  .type = KeyType::datasets,
                                                  .help = "What to evaluate on; the same list as datasets."}));
  t.push_back(with_field<&Recipe::val_set_size>(
      {.name = "val_set_size",
       .section = "data",
       .type = KeyType::steps,
       .help = "Rows taken out of the training data for evaluation: a count, or a fraction below 1.",
       .range = at_least(0),
       .aliases = {{"val_size"}, {"validation_split_ratio"}}}));
  t.push_back(with_field<&Recipe::train_on_inputs>(
      {.name = "train_on_inputs",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Train on the prompts too, not only on the answers.",
       .aliases = {{"train_on_prompt"}, {"train_on_input"}, {"mask_prompt", AliasKind::negated}}}));
  t.push_back(with_field<&Recipe::roles_to_train>({.name = "roles_to_train",
                                                   .section = "data",
                                                   .type = KeyType::list,
                                                   .help = "Whose chat messages are trained.",
                                                   .since = Since::data}));
  t.push_back(with_field<&Recipe::train_on_eos>(
      {.name = "train_on_eos",
       .section = "data",
       .type = KeyType::choice,
       .help =
           "Which end-of-turn tokens of chat rows are trained: turn, those of trained messages; last, only the last "
           "of these; all, of all messages.",
       .since = Since::data,
       .values = {{"turn"}, {"last"}, {"all"}, {"none"}},
       .aliases = {{"train_on_eot"}}}));
  t.push_back(with_field<&Recipe::max_seq_length>(
      {.name = "max_seq_length",
       .section = "data",
       .type = KeyType::integer,
       .help = "Longest row in tokens; never above the model's own limit. Turn gradient_checkpointing on before "
               "lowering it.",
       .range = from_to(8, 1 << 24),
       .aliases = {{"sequence_len"}, {"max_length"}, {"cutoff_len"}, {"max_seq_len"}, {"seq_len"}}}));
  t.push_back(with_field<&Recipe::excess_length_strategy>(
      {.name = "excess_length_strategy",
       .section = "data",
       .type = KeyType::choice,
       .help = "What happens to rows over max_seq_length. Each such row is counted and reported.",
       .values = {{"drop"}, {"truncate"}, {"split"}, {"raise"}},
       .aliases = {{"truncation_strategy"}}}));
  t.push_back(with_field<&Recipe::max_excess_fraction>(
      {.name = "max_excess_fraction",
       .section = "data",
       .type = KeyType::number,
       .help = "Stop when more than this share of the rows is over max_seq_length.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = from_to(0, 1)}));
  t.push_back(with_field<&Recipe::max_malformed_rows>(
      {.name = "max_malformed_rows",
       .section = "data",
       .type = KeyType::integer,
       .help = "How many rows may be left out, each reported, because they cannot be used: broken JSON or CSV, invalid "
               "UTF-8, a field that is missing, a conversation that the chat template refuses. One more stops.",
       .since = Since::data,
       .range = from_to(0, 1e9)}));
  t.push_back(with_field<&Recipe::normalize_newlines>(
      {.name = "normalize_newlines",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Turn carriage returns inside of texts into line feeds. They are kept, and counted, otherwise.",
       .since = Since::data}));
  t.push_back(with_field<&Recipe::sample_packing>(
      {.name = "sample_packing",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Put several short rows into one strip of max_seq_length tokens. Rows do not see each other.",
       .aliases = {{"packing"}, {"packed"}, {"neat_packing"}}}));
  t.push_back(with_field<&Recipe::dataset_prepared_path>(
      {.name = "dataset_prepared_path",
       .section = "data",
       .type = KeyType::path,
       .help =
           "Folder where tokenised data are kept for the next start: cache (the program's cache folder), none, or a "
           "path.",
       .since = Since::data,
       .changes_results = kNoResult,
       .resume = Resume::free,
       .words = {"cache", "none"}}));
}

void add_memory(List& t) {
  t.push_back(with_every_n(
      {.name = "gradient_checkpointing",
       .section = "memory",
       .type = KeyType::choice,
       .help = "Which activations are kept for the backward pass. true: each layer's input, the rest is computed "
               "again; false: "
               "all; selective: all but what is nearly free to compute again; sqrt, {every_n: k}: the input of every "
               "sqrt(layers)-th, k-th layer; auto: the fastest schedule that fits into memory_limit. Results do not "
               "change.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .values = {{"auto"}, {"true"}, {"false"}, {"selective"}, {"sqrt"}, {"every_n"}},
       .aliases = {{"enable_activation_checkpointing"},
                   {"grad_checkpoint"},
                   {"recompute"},
                   {"use_gradient_checkpointing"},
                   {"disable_gradient_checkpointing", AliasKind::negated}},
       .synonyms = {{"unsloth", "true"}},
       .refusals = {{"offload*",
                     "offloading to the host is activation_offloading, which comes with a later version; use true"}}}));
  t.push_back(with_field<&Recipe::selective_checkpointing>(
      {.name = "selective_checkpointing",
       .section = "memory",
       .type = KeyType::save,
       .help =
           "{save: [value names]}: what gradient_checkpointing: selective keeps of a layer, instead of its own choice.",
       .changes_results = kNoResult,
       .resume = Resume::free}));
  t.push_back(with_field<&Recipe::memory_limit>(
      {.name = "memory_limit",
       .section = "memory",
       .type = KeyType::size,
       .help = "Most memory the run may take; auto: what is free, less memory_reserve.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = at_least(1 << 20),
       .word = "auto"}));
  t.push_back(with_field<&Recipe::memory_reserve>({.name = "memory_reserve",
                                                   .section = "memory",
                                                   .type = KeyType::size,
                                                   .help = "Left to others where memory_limit is auto.",
                                                   .changes_results = kNoResult,
                                                   .resume = Resume::free,
                                                   .range = at_least(0)}));
  t.push_back(with_field<&Recipe::loss_chunk_bytes>(
      {.name = "loss_chunk_bytes",
       .section = "memory",
       .type = KeyType::size,
       .help = "Scratch of the chunked loss; rows per chunk follow from it. Results do not depend on it.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = at_least(1024)}));
  t.push_back({.name = "activation_offloading",
               .section = "memory",
               .type = KeyType::boolean,
               .help = "Keep saved activations in host memory.",
               .since = Since::models,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "false"});
  t.push_back(with_field<&Recipe::on_does_not_fit>(
      {.name = "on_does_not_fit",
       .section = "memory",
       .type = KeyType::choice,
       .help =
           "When the plan is over the limit. error: stop, and say what would fit; adjust: checkpointing on, a smaller "
           "loss chunk, then smaller micro-batches with more accumulation. Rows are never cut shorter for it.",
       .values = {{"error"}, {"adjust"}}}));
}

void add_training(List& t) {
  t.push_back(with_field<&Recipe::micro_batch_size>(
      {.name = "micro_batch_size",
       .section = "training",
       .type = KeyType::integer,
       .help = "Rows (or strips of packed rows) that are computed at once: time per row falls, memory grows. auto: the "
               "largest that fits, with effective_batch_size.",
       .range = from_to(1, 1 << 20),
       .word = "auto",
       .aliases = {{"per_device_train_batch_size"}}}));
  t.push_back(
      with_field<&Recipe::gradient_accumulation_steps>({.name = "gradient_accumulation_steps",
                                                        .section = "training",
                                                        .type = KeyType::integer,
                                                        .help = "Micro-batches per optimiser step; costs no memory.",
                                                        .range = from_to(1, 1 << 20),
                                                        .aliases = {{"grad_accum"}, {"grad_accumulation_steps"}}}));
  t.push_back(with_field<&Recipe::effective_batch_size>(
      {.name = "effective_batch_size",
       .section = "training",
       .type = KeyType::integer,
       .help = "Instead of gradient_accumulation_steps: rows per optimiser step, a multiple of micro_batch_size.",
       .range = from_to(1, 1 << 30),
       .word = "none"}));
  t.push_back(with_field<&Recipe::num_epochs>({.name = "num_epochs",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Passes over the data; fractions are fine.",
                                               .resume = Resume::on_demand,
                                               .range = {.min = 0, .max = 1e6, .above_min = true},
                                               .aliases = {{"num_train_epochs"}, {"epochs"}}}));
  t.push_back(with_field<&Recipe::max_steps>({.name = "max_steps",
                                              .section = "training",
                                              .type = KeyType::integer,
                                              .help = "Optimiser steps; takes precedence over num_epochs.",
                                              .resume = Resume::on_demand,
                                              .range = from_to(1, 1e12),
                                              .word = "none",
                                              .synonyms = {{"-1", "none"}}}));
  t.push_back(with_field<&Recipe::optimizer>(
      {.name = "optimizer",
       .section = "training",
       .type = KeyType::choice,
       .help = "The optimiser of the adapters.",
       .values = {{"adamw"}, {"adamw_8bit", Since::models}},
       .aliases = {{"optim"}},
       .synonyms = {{"adamw_torch", "adamw"},
                    {"adamw_torch_fused", "adamw"},
                    {"adamw_hf", "adamw"},
                    {"adamw_bnb_8bit", "adamw_8bit"}},
       .refusals = {
           {"paged_*", "paged optimisers move their state between devices; the state here is small, use adamw"}}}));
  t.push_back(with_field<&Recipe::learning_rate>({.name = "learning_rate",
                                                  .section = "training",
                                                  .type = KeyType::number,
                                                  .help = "Highest learning rate.",
                                                  .resume = Resume::on_demand,
                                                  .range = {.min = 0, .max = 1, .above_min = true},
                                                  .aliases = {{"lr"}}}));
  t.push_back(with_field<&Recipe::weight_decay>({.name = "weight_decay",
                                                 .section = "training",
                                                 .type = KeyType::number,
                                                 .help = "Decoupled weight decay of the adapters.",
                                                 .resume = Resume::on_demand,
                                                 .range = at_least(0)}));
  t.push_back(with_field<&Recipe::adam_beta1>({.name = "adam_beta1",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Decay of AdamW's first moment.",
                                               .resume = Resume::on_demand,
                                               .range = from_below(0, 1)}));
  t.push_back(with_field<&Recipe::adam_beta2>({.name = "adam_beta2",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Decay of AdamW's second moment.",
                                               .resume = Resume::on_demand,
                                               .range = from_below(0, 1)}));
  t.push_back(with_field<&Recipe::adam_epsilon>({.name = "adam_epsilon",
                                                 .section = "training",
                                                 .type = KeyType::number,
                                                 .help = "AdamW's epsilon.",
                                                 .resume = Resume::on_demand,
                                                 .range = above(0)}));
  t.push_back(with_field<&Recipe::max_grad_norm>({.name = "max_grad_norm",
                                                  .section = "training",
                                                  .type = KeyType::number,
                                                  .help = "Gradients are scaled down to this norm; 0: never.",
                                                  .resume = Resume::on_demand,
                                                  .range = at_least(0),
                                                  .aliases = {{"clip_grad_norm"}, {"grad_clip"}}}));
  t.push_back(with_field<&Recipe::lr_scheduler>({.name = "lr_scheduler",
                                                 .section = "training",
                                                 .type = KeyType::choice,
                                                 .help = "Course of the learning rate after the warm-up.",
                                                 .values = {{"cosine"},
                                                            {"linear"},
                                                            {"constant"},
                                                            {"cosine_with_min_lr", Since::models},
                                                            {"wsd", Since::models},
                                                            {"polynomial", Since::models},
                                                            {"inverse_sqrt", Since::models}},
                                                 .aliases = {{"lr_scheduler_type"}},
                                                 .synonyms = {{"constant_with_warmup", "constant"}}}));
  t.push_back(with_field<&Recipe::warmup_steps>(
      {.name = "warmup_steps",
       .section = "training",
       .type = KeyType::steps,
       .help = "Steps in which the learning rate rises: a count, or a fraction below 1 of all steps.",
       .range = at_least(0),
       .aliases = {{"warmup_ratio", AliasKind::fraction}}}));
  t.push_back(with_field<&Recipe::longest_batch_first>(
      {.name = "longest_batch_first",
       .section = "training",
       .type = KeyType::boolean,
       .help = "The step with the longest micro-batch comes first, so that the worst case is over at once."}));
  t.push_back(with_field<&Recipe::seed>({.name = "seed",
                                         .section = "training",
                                         .type = KeyType::integer,
                                         .help = "Seed of the data order, the adapters' start and dropout.",
                                         .range = at_least(0)}));
}

void add_eval(List& t) {
  t.push_back(with_field<&Recipe::eval_steps>(
      {.name = "eval_steps",
       .section = "eval",
       .type = KeyType::steps,
       .help = "Steps between evaluations: a count, a fraction below 1 of all steps, or epoch (at the end of each). "
               "There is "
               "always one at step 0 and one at the end.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = above(0),
       .word = "epoch",
       .aliases = {{"evals_per_epoch", AliasKind::per_epoch},
                   {"eval_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}, {"false", ""}}},
                   {"evaluation_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}, {"false", ""}}}}}));
  t.push_back({.name = "early_stopping_patience",
               .section = "eval",
               .type = KeyType::opaque,
               .help = "Evaluations without improvement before the run stops.",
               .since = Since::rel,
               .resume = Resume::free,
               .later_default = "none"});
  t.push_back({.name = "eval_sample_prompts",
               .section = "eval",
               .type = KeyType::opaque,
               .help = "Prompts that are answered at each evaluation.",
               .since = Since::rel,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "none"});
}

void add_output(List& t) {
  t.push_back(
      with_field<&Recipe::output_dir>({.name = "output_dir",
                                       .section = "output",
                                       .type = KeyType::path,
                                       .help = "Folder of the run: adapter, checkpoints, metrics, resolved recipe.",
                                       .changes_results = kNoResult,
                                       .resume = Resume::ignored,
                                       .aliases = {{"out_dir"}},
                                       .required = true}));
  t.push_back(with_field<&Recipe::save_steps>(
      {.name = "save_steps",
       .section = "output",
       .type = KeyType::steps,
       .help = "Steps between checkpoints: a count, a fraction below 1 of all steps, or epoch (at the end of each).",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = above(0),
       .word = "epoch",
       .aliases = {{"saves_per_epoch", AliasKind::per_epoch},
                   {"save_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}}}}}));
  t.push_back(with_field<&Recipe::save_minutes>({.name = "save_minutes",
                                                 .section = "output",
                                                 .type = KeyType::number,
                                                 .help = "A checkpoint also after this many minutes; 0: not by time.",
                                                 .changes_results = kNoResult,
                                                 .resume = Resume::free,
                                                 .range = at_least(0)}));
  t.push_back(with_field<&Recipe::save_total_limit>({.name = "save_total_limit",
                                                     .section = "output",
                                                     .type = KeyType::integer,
                                                     .help = "Checkpoints that are kept.",
                                                     .changes_results = kNoResult,
                                                     .resume = Resume::free,
                                                     .range = at_least(1)}));
  t.push_back({.name = "load_best_model_at_end",
               .section = "output",
               .type = KeyType::boolean,
               .help = "End with the adapter of the best evaluation.",
               .since = Since::rel,
               .resume = Resume::free,
               .later_default = "false"});
  t.push_back(with_field<&Recipe::resume_from_checkpoint>(
      {.name = "resume_from_checkpoint",
       .section = "output",
       .type = KeyType::path,
       .help = "auto: go on with an unfinished run of the same recipe in output_dir; false: start anew; or a "
               "checkpoint folder.",
       .changes_results = kNoResult,
       .resume = Resume::ignored,
       .words = {"auto", "false"},
       .aliases = {{"auto_resume_from_checkpoints", AliasKind::mapped, {{"true", "auto"}, {"false", "false"}}}},
       .synonyms = {{"true", "auto"}}}));
  t.push_back({.name = "max_minutes",
               .section = "output",
               .type = KeyType::opaque,
               .help = "Stop after this time, save, and exit with 75.",
               .since = Since::rel,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "none"});
  t.push_back(with_field<&Recipe::logging_steps>({.name = "logging_steps",
                                                  .section = "output",
                                                  .type = KeyType::integer,
                                                  .help = "Steps between lines of the log.",
                                                  .changes_results = kNoResult,
                                                  .resume = Resume::free,
                                                  .range = at_least(1),
                                                  .aliases = {{"log_every_n_steps"}}}));
  t.push_back(with_field<&Recipe::report_to>(
      {.name = "report_to",
       .section = "output",
       .type = KeyType::list,
       .help = "Where metrics go: jsonl (metrics.jsonl in output_dir), or an empty list.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .values = {{"jsonl"}, {"tensorboard", Since::models}, {"html", Since::models}}}));
}

void add_export(List& t) {
  t.push_back({.name = "export_formats",
               .section = "export",
               .type = KeyType::list,
               .help = "What is written at the end.",
               .since = Since::models,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "[adapter]"});
  t.push_back({.name = "merge_dtype",
               .section = "export",
               .type = KeyType::text,
               .help = "Type of merged weights.",
               .since = Since::models,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "bf16"});
}

List build() {
  List table;
  add_model(table);
  add_quantization(table);
  add_lora(table);
  add_data(table);
  add_memory(table);
  add_training(table);
  add_eval(table);
  add_output(table);
  add_export(table);
  return table;
}

}  // namespace

const std::vector<KeySpec>& key_table() {
  static const List table = build();
  return table;
}

const std::vector<ChoiceValue>& dataset_types() {
  static const std::vector<ChoiceValue> types = {{name_of(DatasetType::automatic)},
                                                 {name_of(DatasetType::prompt_completion)},
                                                 {name_of(DatasetType::text)},
                                                 {name_of(DatasetType::chat), Since::data},
                                                 {name_of(DatasetType::alpaca), Since::data}};
  return types;
}

}  // namespace bantam
