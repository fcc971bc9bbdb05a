// SPDX-License-Identifier: Apache-2.0
// The program: arguments to commands, errors to messages and exit codes.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace bantam {

/// Runs `bantam <args>` and returns the exit code. What the program itself has to say goes to `out` (results) and
/// `err`.
int run_program(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace bantam
