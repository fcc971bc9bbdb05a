// SPDX-License-Identifier: Apache-2.0
// Every recipe key as a flag, --set, and key=value: what train, plan and validate share.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "load.h"

namespace bantam {

class RecipeArguments {
 public:
  /// Adds a flag per key and alias, in both spellings, and --no-... for switches.
  void add_to(CLI::App& command);
  /// After parsing: the recipe's path (may be empty) and the overrides. Error(usage) for what is neither.
  std::filesystem::path take(const CLI::App& command, std::vector<Override>& overrides) const;

 private:
  struct Flag {
    CLI::Option* option;
    std::string written, key;
    std::string value;  ///< of a --no-... flag; empty: as given
  };
  void add(CLI::App& command, const std::string& name, bool is_switch, bool negatable);

  std::vector<Flag> flags_;
  CLI::Option* set_ = nullptr;
};

/// Joins `--switch` and a following true, false, ... (or checkpointing mode) into `--switch=value`: CLI11 takes a value
/// of a switch only after =, people write both.
std::vector<std::string> join_switch_values(const std::vector<std::string>& args);

/// Error(usage) that names the nearest flag of the command.
[[noreturn]] void throw_unknown_flag(const CLI::App& command, const std::string& flag);

}  // namespace bantam
