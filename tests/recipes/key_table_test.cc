// SPDX-License-Identifier: Apache-2.0
#include "recipes/key_table.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "recipe_testing.h"
#include "recipes/foreign_keys.h"
#include "recipes/resolved.h"
#include "recipes/schema.h"

using namespace bantam;

namespace {

/// The keys of this version, by section.
const std::map<std::string, std::vector<std::string>> kMain = {
    {"model", {"base_model", "hf_base", "chat_template", "dtype", "device", "num_threads"}},
    {"quantization", {"quant_type", "double_quant", "quant_block_size"}},
    {"lora", {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "use_rslora"}},
    {"data",
     {"datasets", "type", "test_datasets", "val_set_size", "train_on_inputs", "roles_to_train", "train_on_eos",
      "max_seq_length", "excess_length_strategy", "max_excess_fraction", "max_malformed_rows", "normalize_newlines",
      "sample_packing", "dataset_prepared_path"}},
    {"memory",
     {"gradient_checkpointing", "selective_checkpointing", "memory_limit", "memory_reserve", "loss_chunk_bytes",
      "activation_offloading", "on_does_not_fit"}},
    {"training",
     {"micro_batch_size", "gradient_accumulation_steps", "effective_batch_size", "num_epochs", "max_steps", "optimizer",
      "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "lr_scheduler",
      "warmup_steps", "longest_batch_first", "seed"}},
    {"eval", {"eval_steps"}},
    {"output",
     {"output_dir", "save_steps", "save_minutes", "save_total_limit", "resume_from_checkpoint", "logging_steps",
      "report_to"}}};
const std::vector<std::string> kLater = {
    "quantize_lm_head",    "quantize_embeddings",    "skip_modules",        "use_dora",
    "lora_init",           "loraplus_lr_ratio",      "layers_to_transform", "rank_pattern",
    "alpha_pattern",       "lora_modules_to_save",   "adapter_path",        "early_stopping_patience",
    "eval_sample_prompts", "load_best_model_at_end", "max_minutes",         "export_formats",
    "merge_dtype"};

}  // namespace

TEST_CASE("every key is in the table, in its section") {
  size_t count = 0;
  for (const auto& [section, names] : kMain) {
    for (const std::string& name : names) {
      CAPTURE(name);
      const KeySpec* key = find_key(name);
      REQUIRE(key != nullptr);
      CHECK(key->section == section);
      CHECK(key->has_field());
      CHECK(available(key->since));
      ++count;
    }
  }
  for (const std::string& name : kLater) {
    CAPTURE(name);
    const KeySpec* key = find_key(name);
    REQUIRE(key != nullptr);
    CHECK(!key->has_field());
    CHECK(!available(key->since));
    ++count;
  }
  CHECK(key_table().size() == count);
}

TEST_CASE("names are unique across keys, aliases, sections and foreign keys") {
  std::set<std::string> seen;
  for (const KeySpec& key : key_table()) {
    CAPTURE(key.name);
    CHECK(seen.insert(key.name).second);
    CHECK(find_foreign_key(key.name) == nullptr);
    CHECK(!key.help.empty());
    CHECK(key.help.back() == '.');
    for (const Alias& alias : key.aliases) {
      CAPTURE(alias.name);
      CHECK(seen.insert(alias.name).second);
      CHECK(find_foreign_key(alias.name) == nullptr);
    }
  }
}

TEST_CASE("defaults are values of their own keys") {
  const Recipe plain = recipe_of("");
  for (const KeySpec& key : key_table()) {
    if (key.required) continue;
    CAPTURE(key.name);
    const std::string text = default_text(key);
    REQUIRE(!text.empty());
    // Empty save lists and the key that stands for another one are not written.
    if (key.name == "selective_checkpointing") continue;
    CHECK(recipe_of(key.name + ": " + text + "\n") == plain);
  }
}

TEST_CASE("the defaults that people rely on") {
  const std::map<std::string, std::string> defaults = {{"dtype", "auto"},
                                                       {"device", "auto"},
                                                       {"num_threads", "auto"},
                                                       {"quant_type", "nf4"},
                                                       {"double_quant", "true"},
                                                       {"quant_block_size", "64"},
                                                       {"lora_r", "16"},
                                                       {"lora_alpha", "32"},
                                                       {"lora_dropout", "0"},
                                                       {"lora_target_modules", "all-linear"},
                                                       {"use_rslora", "false"},
                                                       {"val_set_size", "0"},
                                                       {"train_on_inputs", "false"},
                                                       {"max_seq_length", "2048"},
                                                       {"excess_length_strategy", "drop"},
                                                       {"max_excess_fraction", "0.05"},
                                                       {"sample_packing", "true"},
                                                       {"gradient_checkpointing", "auto"},
                                                       {"memory_limit", "auto"},
                                                       {"memory_reserve", "512MiB"},
                                                       {"loss_chunk_bytes", "128MiB"},
                                                       {"micro_batch_size", "1"},
                                                       {"gradient_accumulation_steps", "8"},
                                                       {"num_epochs", "3"},
                                                       {"max_steps", "none"},
                                                       {"optimizer", "adamw"},
                                                       {"learning_rate", "2e-4"},
                                                       {"weight_decay", "0"},
                                                       {"adam_beta1", "0.9"},
                                                       {"adam_beta2", "0.999"},
                                                       {"adam_epsilon", "1e-8"},
                                                       {"max_grad_norm", "1"},
                                                       {"lr_scheduler", "cosine"},
                                                       {"warmup_steps", "0.03"},
                                                       {"seed", "42"},
                                                       {"eval_steps", "epoch"},
                                                       {"save_steps", "epoch"},
                                                       {"activation_offloading", "false"},
                                                       {"save_minutes", "15"},
                                                       {"save_total_limit", "2"},
                                                       {"resume_from_checkpoint", "auto"},
                                                       {"logging_steps", "1"},
                                                       {"report_to", "[jsonl]"}};
  for (const auto& [name, text] : defaults) {
    CAPTURE(name);
    CHECK(default_text(*find_key(name)) == text);
  }
}

TEST_CASE("what changes results and what a resume may change") {
  const auto letters = [](const char* name) {
    const KeySpec& key = *find_key(name);
    return std::string(key.changes_results ? "R" : "") + (key.resume == Resume::free        ? "C"
                                                          : key.resume == Resume::on_demand ? "E"
                                                                                            : "");
  };
  for (const char* name : {"base_model", "dtype", "device", "quant_type", "lora_r", "lora_dropout", "datasets",
                           "max_seq_length", "sample_packing", "micro_batch_size", "gradient_accumulation_steps",
                           "optimizer", "lr_scheduler", "warmup_steps", "seed"}) {
    CAPTURE(name);
    CHECK(letters(name) == "R");
  }
  for (const char* name : {"num_epochs", "max_steps", "learning_rate", "weight_decay", "max_grad_norm"})
    CHECK(letters(name) == "RE");
  for (const char* name : {"hf_base", "num_threads", "max_excess_fraction", "gradient_checkpointing",
                           "selective_checkpointing", "memory_limit", "loss_chunk_bytes", "activation_offloading",
                           "eval_steps", "save_steps", "save_total_limit", "logging_steps", "report_to"}) {
    CAPTURE(name);
    CHECK(letters(name) == "C");
  }
  CHECK(letters("output_dir").empty());
  CHECK(letters("resume_from_checkpoint").empty());
}

TEST_CASE("keys of later versions are refused unless they change nothing") {
  CHECK(error_of("load_best_model_at_end: true\n") ==
        "r.yaml:5:25: load_best_model_at_end: found \"true\": known, not available in this version (only its default, "
        "false)");
  for (const char* line : {"use_dora: true", "quantize_lm_head: yes", "skip_modules: [lm_head]", "lora_init: pissa",
                           "rank_pattern: {a: 4}", "eval_sample_prompts: [a]", "max_minutes: 30",
                           "export_formats: [gguf]", "merge_dtype: f16", "early_stopping_patience: 3"}) {
    CAPTURE(line);
    CHECK(error_of(std::string(line) + "\n").find("known, not available in this version") != std::string::npos);
  }
  for (const char* line : {"use_dora: no", "skip_modules: [lm_head, embeddings]", "rank_pattern: {}",
                           "max_minutes: none", "adapter_path:", "merge_dtype: bf16", "lora_modules_to_save: []"}) {
    CAPTURE(line);
    CHECK(error_of(std::string(line) + "\n") == "no error");
  }
}

TEST_CASE("values of later versions are refused by name") {
  CHECK(error_of("quant_type: fp4\n") ==
        "r.yaml:5:13: quant_type: found \"fp4\": known, not available in this version (one of nf4, none)");
  for (const char* line :
       {"quant_type: fp4", "optimizer: adamw_8bit", "lr_scheduler: wsd", "report_to: [jsonl, html]"}) {
    CAPTURE(line);
    CHECK(error_of(std::string(line) + "\n").find("known, not available in this version") != std::string::npos);
  }
}

TEST_CASE("a device is a word, for GPUs with a number") {
  for (const char* good : {"auto", "cpu", "cuda", "cuda:0", "cuda:1", "gpu"}) {
    CAPTURE(good);
    CHECK(error_of(str("device: ", good, "\n")) == "no error");
  }
  for (const char* bad : {"cuda:x", "cuda:-1", "cuda:1.5", "cpu:1", "cuda1", "cuda:1024"}) {
    CAPTURE(bad);
    CHECK(error_of(str("device: ", bad, "\n")).find("expected one of auto, cpu, cuda, cuda:N") != std::string::npos);
  }
  const auto schema = nlohmann::json::parse(config_schema());
  CHECK(schema["$defs"]["device"]["anyOf"][1]["pattern"] == "^cuda:[0-9]+$");
}

TEST_CASE("the schema holds every key twice: in its section and as a leaf") {
  const auto schema = nlohmann::json::parse(config_schema());
  for (const KeySpec& key : key_table()) {
    CAPTURE(key.name);
    CHECK(schema["properties"][key.section]["properties"].contains(key.name));
    REQUIRE(schema["$defs"].contains(key.name));
    const auto& entry = schema["$defs"][key.name];
    CHECK(entry["description"] == key.help);
    CHECK(entry["x-available"] == key.has_field());
  }
  CHECK(schema["$defs"]["learning_rate"]["default"] == "2e-4");
  CHECK(schema["$defs"]["learning_rate"]["exclusiveMinimum"] == 0);
  CHECK(schema["$defs"]["quant_type"]["enum"] == nlohmann::json::array({"nf4", "none"}));
  CHECK(schema["$defs"]["lora_r"]["x-aliases"] == nlohmann::json::array({"lora_rank", "r"}));
}
