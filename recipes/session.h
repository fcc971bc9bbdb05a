// SPDX-License-Identifier: Apache-2.0
// From a Recipe to the library's options; what train and plan have in common.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../finetune/data/dataset.h"
#include "../finetune/train/run.h"
#include "commands.h"
#include "recipe.h"

namespace bantam {

/// Everything that stands before step 1. The weights come last: a plan does without them.
struct Session {
  ModelConfig config;
  LoraConfig lora;
  std::vector<AdapterSet::Module> modules;  ///< that get an adapter
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  ///< null: the model has none, and none is asked for
  Dataset train, eval;
  std::unique_ptr<Context> context;
  bool absent_device = false;  ///< planned for a GPU that is not here; the context is the CPU's
  TrainOptions options;  ///< run_key is set, output_dir is the recipe's; planning.h fills in what the plan decides

  // load_weights()
  std::shared_ptr<const Model> model;
  std::optional<AdapterSet> adapters;
};

/// Reads the model's configuration, tokenizer and data. Progress goes to stderr unless quiet. `assume_device`: a plan
/// for a GPU that need not be here. `today`: the date that the data are rendered with (load_chat_template).
Session open_session(const Recipe& recipe, const CommandOptions& options, bool assume_device = false,
                     const std::string& today = {});
/// The part of it that is about data: config, tokenizer, chat_template, train and eval, options.batches.
Session data_session(const Recipe& recipe, const CommandOptions& options, const std::string& today = {});
/// The same as open_session for a model of which only the shape is known: no tokenizer, no data.
Session shape_session(const Recipe& recipe, const std::filesystem::path& config_json, bool assume_device = false);
/// Loads the model (quantising it into the cache the first time) and makes the adapters.
void load_weights(Session& session, const Recipe& recipe, const CommandOptions& options);

QuantConfig quant_config(const Recipe& recipe);
DType dtype_of_recipe(Recipe::Dtype dtype);
/// The Context of a recipe's `device` (kernels/device_choice.h). The CUDA backend is looked for beside the program, or
/// is the file that $BANTAM_CUDA_LIBRARY names.
std::unique_ptr<Context> make_context(const std::string& device, std::optional<int64_t> num_threads);
/// For people: "cuda:0, NVIDIA H200, 138.0 GiB free of 139.8 GiB", or "cpu, avx512, 8 threads".
std::string device_text(const Context& context);
/// Name or path of the CUDA backend's library.
std::string cuda_library();
/// load_model with progress on stderr; what has to be quantised, is on the Context's device.
std::shared_ptr<const Model> load_with_progress(const std::filesystem::path& path, const QuantConfig& quant,
                                                Context& context, bool quiet);

/// "3.2 s", "4 min 10 s", "2 h 5 min".
std::string time_text(double seconds);

}  // namespace bantam
