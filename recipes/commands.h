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
  int64_t debug_rows = 0;  ///< --debug: rows to show as the model will see them
};

/// The recipe is complete: files exist, dataset types are known, paths are absolute.
int train_command(const Recipe& recipe, const CommandOptions& options);

/// Reads and tokenises the data as training would, and reports on them.
int preprocess_command(const Recipe& recipe, const CommandOptions& options);

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
  std::string device = Recipe().device;  ///< as the recipe key; the bytes are the same
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
  bool raw = false;    ///< the prompt is encoded as it is: no template, no special tokens
  bool chat = false;   ///< the prompt is a message, written with the chat template; a run on chat rows does so anyway
  std::string system;  ///< message before it, with chat
  Recipe::Dtype dtype = Recipe::Dtype::automatic;
  std::optional<Recipe::QuantType> quant_type;  ///< none: as the run was trained, or nf4
  std::string device = Recipe().device;         ///< as the recipe key
  std::optional<int64_t> num_threads;
};
int generate_command(const GenerateCommandOptions& options);

struct TokenizeCommandOptions {
  CommandOptions common;
  std::filesystem::path model_or_run;
  std::filesystem::path file;  ///< empty: `text`, or standard input
  std::optional<std::string> text;
  bool chat = false;  ///< rows through the chat template, with their loss mask
  std::optional<std::string> chat_template;
  bool no_special = false;     ///< without BOS and EOS that the tokenizer adds
  bool parse_special = false;  ///< control tokens written in the text are control tokens
  int64_t rows = 5;            ///< most rows of a file that are shown, with chat
};
int tokenize_command(const TokenizeCommandOptions& options);

struct InspectCommandOptions {
  CommandOptions common;
  std::filesystem::path model_or_run;
  bool only_prompt = false;  ///< nothing but the prompt
  std::string prompt;        ///< what the user says in it; empty: Hello!
  std::string system;
  std::optional<std::string> chat_template;
};
int inspect_command(const InspectCommandOptions& options);

/// What this machine has, and whether each device computes what the reference does.
int doctor_command(const CommandOptions& options);

}  // namespace bantam
