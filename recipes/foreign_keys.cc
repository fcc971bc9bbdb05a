// SPDX-License-Identifier: Apache-2.0
#include "foreign_keys.h"

namespace bantam {
namespace {

using Kind = ForeignKey::Kind;

const char* const kNoEffect[] = {
    // kernels and precision of other libraries
    "flash_attention", "flash_attn", "flash_attn_*", "sdp_attention", "xformers_attention", "attn_implementation",
    "tf32", "torch_compile*", "use_cache", "liger_*", "use_liger_kernel", "enable_liger_kernel", "cut_cross_entropy",
    "chunked_cross_entropy", "unsloth_*", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "use_unsloth",
    "bnb_4bit_quant_storage", "low_cpu_mem_usage", "gradient_checkpointing_kwargs", "cudnn_*", "flex_attention",
    // there is no padding and evaluation does not depend on the batch
    "pad_to_sequence_len", "pad_to_multiple_of", "eval_sample_packing", "eval_batch_size", "per_device_eval_batch_size",
    "multipack_real_batches", "sample_packing_group_size", "sample_packing_bin_size",
    // trackers and hubs
    "wandb_*", "use_wandb", "mlflow_*", "comet_*", "use_comet", "use_mlflow", "use_tensorboard", "trackio_*",
    "swanlab_*", "hub_*", "push_to_hub*", "hf_use_auth_token", "logging_dir", "logging_first_step", "run_name",
    "plot_loss", "project_name", "disable_tqdm", "log_level",
    // how other programs read models and data
    "dataloader_*", "dataset_processes", "dataset_num_proc", "preprocessing_num_workers", "overwrite_cache",
    "remove_unused_columns", "model_type", "tokenizer_type", "is_llama_derived_model", "is_mistral_derived_model",
    "is_qwen_derived_model", "is_falcon_derived_model", "tokenizer_use_fast", "use_fast_tokenizer", "trust_remote_code",
    "strict", "debug", "save_safetensors", "lora_fan_in_fan_out", "shuffle_buffer_size", "do_train", "do_eval", "ddp_*",
    "local_rank", "use_ray", "ray_*", "overwrite_output_dir", "include_tokens_per_second", "save_only_model",
    "base_model_ignore_patterns", "skip_prepare_dataset"};

std::vector<ForeignKey> build() {
  std::vector<ForeignKey> keys;
  for (const char* pattern : kNoEffect) keys.push_back({.kind = Kind::no_effect, .pattern = pattern});
  const auto change = [&](const char* pattern, const char* reason, std::vector<std::string> harmless = {}) {
    keys.push_back({Kind::would_change, pattern, reason, std::move(harmless)});
  };
  const auto renamed = [&](const char* pattern, const char* reason) {
    keys.push_back({Kind::renamed, pattern, reason, {}});
  };
  change("fsdp*", "a run uses one device; weights are not sharded over several");
  change("deepspeed*", "a run uses one device; there is no DeepSpeed here");
  change("tensor_parallel_size", "a run uses one device", {"1"});
  change("context_parallel_size", "a run uses one device", {"1"});
  change("sequence_parallel_degree", "a run uses one device", {"1"});
  change("special_tokens", "the tokenizer's own special tokens are used; change the model's tokenizer files instead");
  change("tokens", "tokens cannot be added; change the model's tokenizer files instead");
  change("added_tokens_overrides", "tokens cannot be renamed; change the model's tokenizer files instead");
  change("resize_token_embeddings_to_32x", "the embeddings are not resized");
  change("load_in_8bit", "8-bit weights are not offered; use quant_type: nf4");
  change("fp16", "half precision needs loss scaling and is not offered; use dtype: bf16");
  change("gptq", "GPTQ models cannot be read");
  change("neftune_noise_alpha", "noise on the embeddings is not offered");
  change("noisy_embedding_alpha", "noise on the embeddings is not offered");
  change("label_smoothing_factor", "label smoothing is not offered");
  change("rl", "only supervised fine-tuning is offered");
  change("rl_*", "only supervised fine-tuning is offered");
  change("reward_model", "only supervised fine-tuning is offered");
  change("process_reward_model", "only supervised fine-tuning is offered");
  change("stage", "only supervised fine-tuning is offered", {"sft"});
  change("finetuning_type", "only LoRA adapters are trained", {"lora", "qlora"});
  change("training_type", "only LoRA adapters are trained", {"lora", "qlora"});
  change("fine_tune_type", "only LoRA adapters are trained", {"lora", "qlora"});
  change("use_peft", "only LoRA adapters are trained", {"true"});
  change("unfrozen_parameters", "only LoRA adapters are trained");
  change("relora*", "restarts of the adapters are not offered");
  change("jagged_restart_*", "restarts of the learning rate are not offered");
  change("lisa_*", "training of sampled layers is not offered");
  change("galore_*", "gradient projection is not offered");
  change("optim_args", "the optimiser's settings are adam_beta1, adam_beta2, adam_epsilon and weight_decay");
  change("optim_target_modules", "the optimiser treats all adapters alike");
  change("lr_groups", "all adapters have one learning rate");
  change("embedding_lr*", "the embeddings are not trained");
  change("cosine_min_lr_ratio", "the cosine ends at 0; a floor comes with a later version");
  change("cosine_constant_lr_ratio", "the cosine ends at 0");
  change("lr_scheduler_kwargs", "the schedules have no further settings");
  change("rope_scaling", "the model's own setting is used; change config.json instead");
  change("overrides_of_model_config", "the model's own settings are used; change config.json instead");
  change("group_by_length", "rows are drawn in a random order; packing keeps strips full");
  change("curriculum_sampling", "rows are drawn in a random order");
  change("shuffle_merged_datasets", "rows are always drawn in a random order", {"true"});
  change("auto_find_batch_size", "sizes are fixed before step 1; see bantam plan");
  change("pretraining_dataset", "streamed data are not offered; name files in datasets");
  change("streaming", "data are read in full before step 1");
  change("plugins", "there are no plug-ins; the chunked loss and the fused kernels are built in");
  change("loss_watchdog_*", "the run stops by itself at numbers that are not finite");
  change("freeze_*", "the base model is frozen, all of it");
  change("batch_flattening", "use sample_packing");
  change("skip_first_batches", "a resume finds its place in the data by itself");
  renamed("batch_size",
          "ambiguous: micro_batch_size (rows computed at once) or effective_batch_size (rows per optimiser step)");
  renamed("train_batch_size",
          "ambiguous: micro_batch_size (rows computed at once) or effective_batch_size (rows per optimiser step)");
  for (const char* name : {"chunked_cross_entropy_chunk_size", "chunked_cross_entropy_num_chunks", "lmhead_chunks",
                           "num_output_chunks", "loss_chunk_size"}) {
    renamed(name, "the loss is cut by memory here: loss_chunk_bytes, a size such as 128MiB");
  }
  renamed("scale", "here lora_alpha, which is scale times lora_r");
  renamed("iters", "here max_steps (optimiser steps)");
  renamed("quantization_bit", "here quant_type: nf4 (4 bits) or none");
  renamed("quantize", "here quant_type (nf4, none) and double_quant");
  renamed("global_batch_size", "here effective_batch_size (rows per optimiser step)");
  renamed("dataset", "here datasets, a list of {path, type}");
  renamed("train_file", "here datasets, a list of {path, type}");
  return keys;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view text) {
  if (pattern.empty() || pattern.back() != '*') return pattern == text;
  pattern.remove_suffix(1);
  return text.substr(0, pattern.size()) == pattern;
}

const ForeignKey* find_foreign_key(std::string_view name) {
  static const std::vector<ForeignKey> keys = build();
  for (const ForeignKey& key : keys) {
    if (matches_pattern(key.pattern, name)) return &key;
  }
  return nullptr;
}

}  // namespace bantam
