// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation.
#pragma once
#include <string>
#include <string_view>

namespace bantam {

/// NFC; bytes that are not UTF-8 stay as they are.
std::string to_nfc(std::string_view text);

}  // namespace bantam
