// SPDX-License-Identifier: Apache-2.0
// Names and values of other tools.
#include <doctest/doctest.h>

#include "recipe_testing.h"
#include "recipes/key_table.h"

using namespace bantam;

namespace {
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("every renaming alias sets its key and is named once") {
  for (const KeySpec& key : key_table()) {
    if (!key.has_field() || key.required || key.name == "selective_checkpointing") continue;
    for (const Alias& alias : key.aliases) {
      if (alias.kind != AliasKind::rename) continue;
      CAPTURE(alias.name);
      const LoadedRecipe loaded = load_text(alias.name + ": " + default_text(key) + "\n");
      CHECK(loaded.recipe == recipe_of(""));
      CHECK(has_notice(loaded, alias.name + " (here " + key.name + ")"));
    }
  }
  CHECK(recipe_of("lora_rank: 4").lora_r == 4);
  CHECK(recipe_of("sequence_len: 64").max_seq_length == 64);
  CHECK(recipe_of("grad_clip: 0.5").max_grad_norm == 0.5);
  CHECK(recipe_of("val_size: 0.1").val_set_size == 0.1);
}

TEST_CASE("aliases that imply a value") {
  using Quant = Recipe::QuantType;
  using Dtype = Recipe::Dtype;
  CHECK(recipe_of("load_in_4bit: true").quant_type == Quant::nf4);
  CHECK(recipe_of("load_in_4bit: no").quant_type == Quant::none);
  CHECK(recipe_of("adapter: lora").quant_type == Quant::none);
  CHECK(recipe_of("adapter: qlora").quant_type == Quant::nf4);
  CHECK(recipe_of("adapter: qlora\nload_in_4bit: true").quant_type == Quant::nf4);
  CHECK(contains(error_of("adapter: lora\nload_in_4bit: true"), "load_in_4bit: found a second value for quant_type"));
  CHECK(error_of("adapter: ia3") == "r.yaml:5:10: adapter: found \"ia3\", expected one of qlora, lora");
  CHECK(recipe_of("bf16: true").dtype == Dtype::bf16);
  CHECK(recipe_of("bf16: auto").dtype == Dtype::automatic);
  CHECK(recipe_of("fp32: true").dtype == Dtype::f32);
  CHECK(recipe_of("torch_dtype: bfloat16").dtype == Dtype::bf16);
  CHECK(contains(error_of("torch_dtype: float16"), "use bf16"));
  CHECK(recipe_of("lora_target_linear: true").lora_target_modules == std::vector<std::string>{"all-linear"});
  CHECK(recipe_of("disable_gradient_checkpointing: true").gradient_checkpointing == Recipe::Checkpointing::off);
  CHECK(recipe_of("disable_gradient_checkpointing: false").gradient_checkpointing == Recipe::Checkpointing::on);
  CHECK(recipe_of("mask_prompt: false").train_on_inputs);
  CHECK(!recipe_of("mask_prompt: true").train_on_inputs);
  CHECK(contains(error_of("disable_gradient_checkpointing: selective"), "expected true or false"));
}

TEST_CASE("values of other tools") {
  CHECK(has_notice(load_text("optim: adamw_torch"), "optimizer adamw_torch (here adamw)"));
  CHECK(contains(error_of("optimizer: paged_adamw_32bit"), "optimizer: found \"paged_adamw_32bit\": paged optimisers"));
  CHECK(recipe_of("lr_scheduler_type: constant_with_warmup").lr_scheduler == Recipe::LrScheduler::constant);
  CHECK(recipe_of("max_steps: -1").max_steps == std::nullopt);
  CHECK(recipe_of("gradient_checkpointing: unsloth").gradient_checkpointing == Recipe::Checkpointing::on);
  CHECK(contains(error_of("gradient_checkpointing: offload"), "activation_offloading: true"));
  CHECK(recipe_of("enable_activation_offloading: true").activation_offloading);
}

TEST_CASE("warm-up as a ratio or as steps") {
  CHECK(recipe_of("warmup_ratio: 0.1").warmup_steps == 0.1);
  CHECK(recipe_of("warmup_steps: 10").warmup_steps == 10);
  CHECK(error_of("warmup_ratio: 1") == "r.yaml:5:15: warmup_ratio: found \"1\", expected a fraction from 0 to below 1");
  CHECK(contains(error_of("warmup_ratio: 0.1\nwarmup_steps: 10"), "found a second value for warmup_steps"));
}

TEST_CASE("evaluations and checkpoints per epoch") {
  CHECK(recipe_of("evals_per_epoch: 1\nval_set_size: 1").eval_steps == std::nullopt);
  CHECK(recipe_of("evals_per_epoch: 4\nval_set_size: 1\nnum_epochs: 2").eval_steps == 0.125);
  CHECK(recipe_of("num_epochs: 2\nsaves_per_epoch: 2").save_steps == 0.25);
  CHECK(recipe_of("saves_per_epoch: 2", {{"--num-epochs", "num_epochs", "5"}}).save_steps == 0.1);
  CHECK(recipe_of("saves_per_epoch: 2", {{"--save-steps", "save_steps", "7"}}).save_steps == 7);
  CHECK(contains(error_of("saves_per_epoch: 2\nmax_steps: 9"), "saves_per_epoch: cannot be used with max_steps"));
  CHECK(contains(error_of("saves_per_epoch: 0"), "expected a whole number from 1"));
  CHECK(recipe_of("save_strategy: epoch").save_steps == std::nullopt);
  CHECK(contains(error_of("save_strategy: no"), "expected one of epoch, steps"));
  CHECK(has_notice(load_text("eval_steps: 5"), "eval_steps has no effect"));
}

TEST_CASE("keys without effect are named in one line") {
  const LoadedRecipe loaded = load_text(
      "flash_attention: true\ntf32: true\nwandb_project: x\nwandb_run_id: [1]\ntraining:\n  pad_to_sequence_len: "
      "true\n");
  CHECK(loaded.recipe == recipe_of(""));
  CHECK(has_notice(loaded,
                   "keys of other tools without effect here: flash_attention, tf32, wandb_project, wandb_run_id, "
                   "pad_to_sequence_len"));
}

TEST_CASE("keys that would change the result are refused with the reason, unless they are off") {
  CHECK(contains(error_of("fsdp: [full_shard]"), "r.yaml:5:1: fsdp: not a key here: a run uses one device"));
  CHECK(contains(error_of("special_tokens: {pad_token: x}"), "special_tokens: not a key here"));
  for (const char* line : {"deepspeed: ds.json", "load_in_8bit: true", "fp16: true", "neftune_noise_alpha: 5",
                           "rl: dpo", "group_by_length: true"}) {
    CAPTURE(line);
    CHECK(contains(error_of(line), "not a key here: "));
  }
  for (const char* line : {"fsdp:", "fsdp: []", "deepspeed: null", "load_in_8bit: false", "fp16: no",
                           "special_tokens: {}", "neftune_noise_alpha: 0", "finetuning_type: lora", "stage: sft"}) {
    CAPTURE(line);
    CHECK(error_of(line) == "no error");
  }
}

TEST_CASE("names that mean something else here are refused with the right ones") {
  const std::string message = error_of("batch_size: 4");
  CHECK(contains(message, "batch_size: not a key here: ambiguous"));
  CHECK(contains(message, "micro_batch_size"));
  CHECK(contains(message, "effective_batch_size"));
  CHECK(contains(error_of("lmhead_chunks: 4"), "loss_chunk_bytes"));
  CHECK(contains(error_of("chunked_cross_entropy_chunk_size: 4"), "loss_chunk_bytes"));
  CHECK(contains(error_of("scale: 20"), "lora_alpha"));
}

TEST_CASE("a recipe as other tools write it") {
  const LoadedRecipe loaded = parse_recipe(R"(base_model: m
model_type: LlamaForCausalLM
load_in_8bit: false
load_in_4bit: true
strict: false
datasets:
  - path: d.jsonl
    type: completion
    ds_type: json
dataset_prepared_path:
val_set_size: 0.05
output_dir: ./out
adapter: qlora
lora_model_dir:
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: adamw_torch
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
resume_from_checkpoint:
logging_steps: 1
flash_attention: true
warmup_ratio: 0.1
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
)",
                                           "r.yaml");
  CHECK(loaded.recipe.max_seq_length == 4096);
  CHECK(loaded.recipe.lora_r == 32);
  CHECK(loaded.recipe.warmup_steps == 0.1);
  CHECK(loaded.recipe.eval_steps == 1.0 / 16);
  CHECK(loaded.recipe.datasets.at(0).type == Recipe::DatasetType::text);
}
