// SPDX-License-Identifier: Apache-2.0
// Keys of the sections model, quantization, lora.
#include "key_fields.h"

namespace bantam {
namespace {

void add_model(KeyList& t) {
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

void add_quantization(KeyList& t) {
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

void add_lora(KeyList& t) {
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

}  // namespace

void add_model_keys(KeyList& t) {
  add_model(t);
  add_quantization(t);
  add_lora(t);
}

}  // namespace bantam
