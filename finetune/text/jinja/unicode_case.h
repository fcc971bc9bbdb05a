// SPDX-License-Identifier: Apache-2.0
// Case of single code points, as Python's str methods see it.
#pragma once
#include <cstdint>
#include <string>

namespace bantam {

bool is_cased(uint32_t code);
/// Does not end a word where a final sigma is looked for.
bool is_case_ignorable(uint32_t code);
// One code point may become several; append_lower is ../unicode.h's.
void append_upper(std::string& out, uint32_t code);
void append_title(std::string& out, uint32_t code);

}  // namespace bantam
