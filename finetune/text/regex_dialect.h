// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer files are Oniguruma's; the same signs mean other things to PCRE2 in places.
#pragma once
#include <string>

namespace bantam {

/// `pattern` so that PCRE2 (UTF, UCP) matches what Oniguruma would. Error(model) naming `where` and the construct for
/// what the two read differently and this does not translate.
std::string to_pcre2(const std::string& pattern, const std::string& where);

}  // namespace bantam
