// SPDX-License-Identifier: Apache-2.0
// What --help prints.
#pragma once
#include <string>

namespace bantam {

/// Of the program (empty), or of a command.
std::string help_text(const std::string& command);

/// --learning-rate: a key as a flag.
std::string flag_of(const std::string& key);

}  // namespace bantam
