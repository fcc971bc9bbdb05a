// SPDX-License-Identifier: Apache-2.0
// The bodies of the program's commands. Each returns the exit code or throws Error; results go to stdout, messages to
// stderr. Defined in commands_<name>.cc.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "recipe.h"

namespace bantam {

struct CommandOptions {
  bool json = false;       ///< results as JSON on stdout
  bool quiet = false;      ///< no progress, no notes; warnings and errors stay
  bool color = false;      ///< stderr is a terminal and NO_COLOR is not set
  bool resume = false;     ///< --resume: go on although keys that may change on demand differ
  bool overwrite = false;  ///< --overwrite: start anew in a folder that holds a run
};

/// The recipe is complete: files exist, dataset types are known, paths are absolute.
int train_command(const Recipe& recipe, const CommandOptions& options);

struct PlanCommandOptions {
  CommandOptions common;
  std::filesystem::path config;  ///< a config.json: the shape of a model that is not here; data are not read
  int64_t assume_memory = 0;     ///< bytes; of the machine that is planned for. 0: this one's
  double assume_rate = 0;        ///< FLOP/s; 0: measured
  std::filesystem::path svg;     ///< where to write the picture; empty: nowhere
};
int plan_command(const Recipe& recipe, const PlanCommandOptions& options);

struct SelftestCommandOptions {
  CommandOptions common;
  int64_t steps = 3;
};
int selftest_command(const Recipe& recipe, const SelftestCommandOptions& options);

struct QuantizeCommandOptions {
  CommandOptions common;
  Recipe::QuantType quant_type = Recipe::QuantType::nf4;
  bool double_quant = true;
  std::optional<int64_t> num_threads;
};
int quantize_command(const std::filesystem::path& model, const std::filesystem::path& out,
                     const QuantizeCommandOptions& options);

struct GenerateCommandOptions {
  CommandOptions common;
  std::filesystem::path model_or_run;  ///< a model, or a run's folder
  std::filesystem::path adapter;       ///< empty: that of the run, or none
  std::string prompt;
  int64_t max_new_tokens = 128;
  double temperature = 0;  ///< 0: greedy
  double top_p = 1;
  int64_t seed = 42;
  bool raw = false;  ///< the prompt is encoded without the tokenizer's special tokens
  Recipe::Dtype dtype = Recipe::Dtype::automatic;
  std::optional<Recipe::QuantType> quant_type;  ///< none: as the run was trained, or nf4
  std::string device = Recipe().device;         ///< as the recipe key
  std::optional<int64_t> num_threads;
};
int generate_command(const GenerateCommandOptions& options);

/// What this machine has, and whether each device computes what the reference does.
int doctor_command(const CommandOptions& options);

}  // namespace bantam
