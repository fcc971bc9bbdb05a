// SPDX-License-Identifier: Apache-2.0
// A training recipe: one typed field per key that this version knows how to use. The initialisers here are the
// defaults; names, ranges, aliases and help are in keys_*.cc. Leaf names are unique, so the struct is flat as a
// recipe may be.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../finetune/data/dataset.h"

namespace bantam {

struct Recipe {
  // Enumerators stand in the order of the values in keys_*.cc.
  enum class Dtype : uint8_t { automatic, bf16, f32 };
  enum class QuantType : uint8_t { nf4, fp4, none };
  using DatasetType = bantam::DatasetType;
  using ExcessLength = bantam::ExcessLength;
  using TrainOnEos = bantam::TrainOnEos;
  enum class Checkpointing : uint8_t { automatic, on, off, selective, sqrt, every_n };
  enum class DoesNotFit : uint8_t { error, adjust };
  enum class Optimizer : uint8_t { adamw, adamw_8bit };
  enum class LrScheduler : uint8_t { cosine, linear, constant, cosine_with_min_lr, wsd, polynomial, inverse_sqrt };

  using Dataset = DatasetSpec;  ///< its path is absolute once loaded

  // model
  std::string base_model;                           ///< required; absolute once loaded
  std::string hf_base;                              ///< empty: from the model's metadata
  std::string chat_template = "tokenizer_default";  ///< or a name, or a .jinja file, absolute once loaded
  Dtype dtype = Dtype::automatic;
  std::string device = "auto";         ///< auto, cpu, cuda, cuda:N
  std::optional<int64_t> num_threads;  ///< none: auto

  // quantization
  QuantType quant_type = QuantType::nf4;
  bool double_quant = true;
  int64_t quant_block_size = 64;

  // lora
  int64_t lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules = {"all-linear"};  ///< as LoraConfig::target_modules
  bool use_rslora = false;

  // data
  std::vector<Dataset> datasets;              ///< required
  DatasetType type = DatasetType::automatic;  ///< of datasets that name none
  std::vector<Dataset> test_datasets;
  double val_set_size = 0;  ///< rows, or a fraction below 1
  bool train_on_inputs = false;
  std::vector<std::string> roles_to_train = {"assistant"};
  TrainOnEos train_on_eos = TrainOnEos::turn;
  int64_t max_seq_length = 2048;
  ExcessLength excess_length_strategy = ExcessLength::drop;
  double max_excess_fraction = 0.05;
  int64_t max_malformed_rows = 0;   ///< rows that cannot be used and are left out; one more stops
  bool normalize_newlines = false;  ///< CR LF and CR inside of texts become LF
  bool sample_packing = true;
  std::string dataset_prepared_path = "cache";  ///< cache, none, or a folder (absolute once loaded)

  // memory
  Checkpointing gradient_checkpointing = Checkpointing::automatic;
  int64_t every_n = 1;                               ///< layers a segment, of Checkpointing::every_n
  std::vector<std::string> selective_checkpointing;  ///< values to save; empty: the built-in choice
  std::optional<int64_t> memory_limit;               ///< bytes; none: auto
  int64_t memory_reserve = int64_t{512} << 20;       ///< bytes left free when memory_limit is auto
  int64_t loss_chunk_bytes = int64_t{128} << 20;
  bool activation_offloading = false;  ///< layer inputs in host memory; on a GPU only
  DoesNotFit on_does_not_fit = DoesNotFit::error;

  // training
  std::optional<int64_t> micro_batch_size = 1;  ///< none: auto, the largest that fits; with effective_batch_size only
  int64_t gradient_accumulation_steps = 8;
  /// load_recipe turns it into gradient_accumulation_steps, where micro_batch_size is a number.
  std::optional<int64_t> effective_batch_size;
  double num_epochs = 3;
  std::optional<int64_t> max_steps;  ///< takes precedence over num_epochs
  Optimizer optimizer = Optimizer::adamw;
  double learning_rate = 2e-4;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< 0: no clipping
  LrScheduler lr_scheduler = LrScheduler::cosine;
  double warmup_steps = 0.03;  ///< steps, or a fraction below 1 of all steps
  bool longest_batch_first = true;
  int64_t seed = 42;

  // eval
  std::optional<double> eval_steps;  ///< steps, or a fraction below 1 of all steps; none: at the end of each epoch

  // output
  std::string output_dir;            ///< required; absolute once loaded
  std::optional<double> save_steps;  ///< as eval_steps
  double save_minutes = 15;          ///< 0: off
  int64_t save_total_limit = 2;
  std::string resume_from_checkpoint = "auto";  ///< auto, false, or a path (absolute once loaded)
  int64_t logging_steps = 1;
  std::vector<std::string> report_to = {"jsonl"};

  bool operator==(const Recipe&) const = default;
};

}  // namespace bantam
