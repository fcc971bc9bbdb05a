// SPDX-License-Identifier: Apache-2.0
// The key table as JSON Schema, for editors and other programs.
#pragma once
#include <string>

namespace bantam {

/// JSON Schema (2020-12): sections and, since a flat recipe is valid too, the leaves at the top. Per key also
/// x-aliases, x-since, x-available, x-changes-results and x-resume.
std::string config_schema();

}  // namespace bantam
